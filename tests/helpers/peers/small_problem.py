"""A small classification problem for whole rounds, and two ClientApps for it: a plain one, and ours.

The plain one is written as Flower's PyTorch examples are: ``torch.optim``, autograd, for FedProx the term
(mu / 2) ||w - w_t||^2 in the loss; it uses nothing of ours. All is float64, and each step takes all of a
node's examples, so that no order of batches has to agree.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD

from clients import Classification, Examples, LocalTraining, Node, client_app
from clients.training import CorrectionFactory

NODES, STEPS, RATE = 5, 4, 0.2
SIZES = (8, 3, 20, 5, 12)


def model(*, norm: bool = True) -> nn.Module:
    torch.manual_seed(0)
    middle = nn.BatchNorm1d(7, momentum=0.3) if norm else nn.Tanh()
    return nn.Sequential(nn.Linear(6, 7), middle, nn.ReLU(), nn.Linear(7, 3)).double()


def data(k: int) -> tuple[Tensor, Tensor]:
    """Return node k's inputs and labels: each node prefers other labels, and has another scale."""
    random = torch.Generator().manual_seed(100 + k)
    inputs = torch.randn(SIZES[k], 6, generator=random, dtype=torch.float64) * (1 + k)
    labels = (torch.randint(2, (SIZES[k],), generator=random) + k) % 3
    return inputs, labels


def balanced(k: int) -> tuple[Tensor, Tensor]:
    """Return node k's examples: six of each of two labels."""
    random = torch.Generator().manual_seed(200 + k)
    labels = (torch.arange(12) % 2 + k) % 3
    return torch.randn(12, 6, generator=random, dtype=torch.float64) * (1 + k), labels


def plain_app(make: Callable[[], nn.Module], momentum: float = 0.0) -> ClientApp:
    """Return a ClientApp that anyone would write."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        net = make()
        arrays, config = message.content["arrays"], message.content["config"]
        assert isinstance(arrays, ArrayRecord)
        assert isinstance(config, ConfigRecord)
        net.load_state_dict(arrays.to_torch_state_dict())
        start = [p.detach().clone() for p in net.parameters()]
        mu = float(config.get("proximal-mu", 0.0))  # type: ignore[arg-type]
        inputs, labels = data(int(context.node_config["partition-id"]))
        optimizer = SGD(net.parameters(), lr=RATE, momentum=momentum)
        net.train()
        for _ in range(STEPS):
            optimizer.zero_grad()
            pairs = zip(net.parameters(), start, strict=True)
            distance = torch.stack([(p - w).square().sum() for p, w in pairs]).sum()
            loss = cross_entropy(net(inputs), labels) + mu / 2 * distance
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        reply = {
            "arrays": ArrayRecord(net.state_dict()),
            "metrics": MetricRecord({"num-examples": len(labels)}),
        }
        return Message(RecordDict(reply), reply_to=message)

    return app


def our_app(
    make: Callable[[], nn.Module],
    momentum: float = 0.0,
    correction: CorrectionFactory | None = None,
    data_of: Callable[[int], tuple[Tensor, Tensor]] = data,
    **more: Any,
) -> ClientApp:
    """Return ours for the same work; ``more`` are settings of the local training."""
    training = LocalTraining(
        optimizer=partial(SGD, lr=RATE, momentum=momentum),
        local_epochs=None,
        local_steps=STEPS,
        batch_size=None,
        corrections={} if correction is None else {"correction": correction},
        **more,
    )
    net = make()

    def node(message: Message, context: Context) -> Node:
        inputs, labels = data_of(int(context.node_config["partition-id"]))
        examples = Examples(inputs, labels, torch.arange(len(labels)))
        return Node(net, training, Classification(), examples, examples)

    return client_app(node)
