"""The ClientApp, addressed through an inline grid."""

from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import strategy as stock
from torch import nn
from torch.optim import SGD, Adam

from baselines.grids.inline import InlineGrid
from clients import Classification, Examples, LocalTraining, Node, Personal, Task, client_app
from clients.app import check_training
from clients.round import load_arrays
from strategies import FedAvg, FedProx
from strategies.shared.arrays import view_values

NODES = 3


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 2))


def grid(seed: int = 0, num_tests: int = 5, **settings: object) -> InlineGrid:
    random = torch.Generator().manual_seed(1)
    inputs, targets = torch.randn(60, 4, generator=random), torch.randint(2, (60,), generator=random)
    shared = model()
    training = LocalTraining(**{"optimizer": partial(SGD, lr=0.1), "batch_size": 4, **settings})  # type: ignore[arg-type]

    def node_of(message: Message, context: Context) -> Node:
        k = int(context.node_config["partition-id"])
        first = 20 * k  # 6, 12, 18 examples
        train = Examples(inputs, targets, torch.arange(first, first + 6 * (k + 1)))
        test = Examples(inputs, targets, torch.arange(first + 15, first + 15 + num_tests))
        return Node(shared, training, Classification(), train, test, seed)

    return InlineGrid(client_app(node_of), NODES)


def initial() -> ArrayRecord:
    return ArrayRecord(model().state_dict())


def ask(
    grid: InlineGrid, kind: str, arrays: ArrayRecord, server_round: int = 1, **more: float
) -> list[Message]:
    config = ConfigRecord({"server-round": server_round, **more})
    content = RecordDict({"arrays": arrays, "config": config})
    messages = [Message(content, node, kind) for node in grid.get_node_ids()]
    return grid.send_and_receive(messages)


def test_a_reply_carries_the_whole_model_and_its_metrics() -> None:
    for k, reply in enumerate(ask(grid(), "train", initial())):
        assert list(reply.content["arrays"]) == list(model().state_dict())
        metrics = reply.content["metrics"]
        assert metrics["num-examples"] == 6 * (k + 1)
        assert metrics["partition-id"] == k
        assert metrics["local-steps"] == -(-6 * (k + 1) // 4)
        assert metrics["learning-rate"] == 0.1
        assert metrics["client-seconds"] > 0
        assert set(metrics) >= {"loss", "accuracy"}
        assert view_values(reply.content["arrays"]["1.num_batches_tracked"]) == metrics["local-steps"]


def test_what_a_node_returns_depends_on_seed_round_and_partition_alone() -> None:
    def trained(seed: int, server_round: int) -> list[bytes]:
        replies = ask(grid(seed), "train", initial(), server_round)
        return [reply.content["arrays"]["0.weight"].data for reply in replies]

    assert trained(0, 1) == trained(0, 1)
    assert trained(0, 1) != trained(0, 2)
    assert trained(0, 1) != trained(1, 1)
    together = grid()
    ask(together, "train", initial(), 7)  # what the nodes did before leaves no trace
    again = ask(together, "train", initial(), 1)
    assert [reply.content["arrays"]["0.weight"].data for reply in again] == trained(0, 1)


def test_evaluates_on_its_own_test_examples() -> None:
    for reply in ask(grid(), "evaluate", initial()):
        metrics = reply.content["metrics"]
        assert metrics["num-examples"] == 5
        assert 0 <= metrics["accuracy"] <= 1
        assert set(metrics) == {"num-examples", "loss", "accuracy", "partition-id"}


def test_a_node_without_test_examples_says_so() -> None:
    assert [dict(r.content["metrics"]) for r in ask(grid(num_tests=0), "evaluate", initial())] == [
        {"num-examples": 0, "partition-id": k} for k in range(3)
    ]


def test_a_proximal_mu_of_zero_is_none() -> None:
    plain, zero, some = (
        ask(grid(), "train", initial(), **more) for more in ({}, {"proximal-mu": 0.0}, {"proximal-mu": 0.5})
    )
    for a, b, c in zip(plain, zero, some, strict=True):
        assert a.content["arrays"]["0.weight"].data == b.content["arrays"]["0.weight"].data
        assert a.content["arrays"]["0.weight"].data != c.content["arrays"]["0.weight"].data


def test_fedprox_sends_its_mu() -> None:
    nodes = grid()
    (message, *_) = FedProx(mu=0.25).configure_train(1, initial(), ConfigRecord(), nodes)
    assert message.content["config"]["proximal-mu"] == 0.25


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("2.bias", np.zeros(1, np.float32), "'2.bias' has shape (1,), this node's model (2,)"),
        ("head", np.zeros(2, np.float32), "they differ in ['head']"),
    ],
)
def test_refuses_a_model_that_is_not_its_own(name: str, values: np.ndarray, message: str) -> None:
    other = ArrayRecord({**initial(), name: Array(values)})
    for reply in ask(grid(), "train", other):
        assert reply.has_error()
        assert message in str(reply.error.reason)


def test_loads_every_array() -> None:
    ours, other = model(), model()
    for tensor in other.state_dict().values():
        tensor.add_(1)
    load_arrays(ours, ArrayRecord(other.state_dict()))
    for a, b in zip(ours.state_dict().values(), other.state_dict().values(), strict=True):
        assert torch.equal(a, b)


def test_serves_flowers_own_fedavg() -> None:
    """After a round under the stock strategy the model is the one that ours gives, but for rounding."""
    theirs = stock.FedAvg(fraction_evaluate=0.0, min_train_nodes=NODES, min_available_nodes=NODES)
    first = theirs.start(grid(), initial(), num_rounds=1).arrays
    second = FedAvg(federated_evaluation=False).start(grid(), initial(), num_rounds=1).arrays
    for name in model().state_dict():
        if name != "1.num_batches_tracked":  # stock averages it into a float
            np.testing.assert_allclose(
                view_values(first[name]), view_values(second[name]), rtol=1e-5, atol=1e-6
            )


def test_what_a_strategy_asks_for_is_held_against_the_training() -> None:
    training = LocalTraining(optimizer=partial(Adam, lr=0.1))
    for config in ({}, {"proximal-mu": 0.5, "gradient-variance": True}, {"control-option": 1}):
        check_training(training, config)
    with pytest.raises(ValueError, match="is Adam: set"):
        check_training(training, {"control-option": 2})


@dataclass(frozen=True)
class Moved(Personal):
    """A personal model: the server's plus the round of the message, in its last bias."""

    server_round: int = 0

    def for_message(self, content: RecordDict) -> "Moved":
        return Moved(int(content.config_records["config"]["server-round"]))  # type: ignore[arg-type]

    def personalise(
        self, model: nn.Module, examples: Examples, task: Task, batch_size: int | None, state: RecordDict
    ) -> None:
        with torch.no_grad():
            model[2].bias[0].add_(1000.0 * self.server_round)  # type: ignore[index,operator]


def test_a_personal_model_may_depend_on_the_message_that_it_is_evaluated_for() -> None:
    """With so large a bias the loss is what the bias is, where the label is the other one."""
    losses = [
        [
            reply.content["metrics"]["loss"]
            for reply in ask(grid(personal=Moved()), "evaluate", initial(), t)
        ]
        for t in (1, 2)
    ]
    assert all(one > 100 for one in losses[0])
    assert losses[1] == pytest.approx([2 * one for one in losses[0]], rel=0.02)
