"""Three nodes with quadratics whose optimum is known."""

from functools import partial

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, Message
from torch import Tensor, nn

from baselines.grids.inline import InlineGrid
from clients import Examples, LeastSquares, LocalTraining, Node, client_app
from helpers.federation import play
from strategies import FedAvg, Scaffold

# F_k(w) = 0.5 h_k (w - t_k)^2 per coordinate j: a row sqrt(h) e_j with target sqrt(h) t_j for each j.
CURVATURES = torch.tensor([[1.0, 4.0], [6.0, 0.5], [2.0, 2.0]], dtype=torch.float64)
TARGETS = torch.tensor([[1.0, -2.0], [5.0, 3.0], [-4.0, 0.0]], dtype=torch.float64)
OPTIMUM = (CURVATURES * TARGETS).sum(0) / CURVATURES.sum(0)
RATE, STEPS = 0.1, 8


class Point(nn.Module):
    """x w for w [2, 1]."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(2, 1, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.w


def training(clip: float | None = None, **sgd: float) -> LocalTraining:
    optimizer = partial(torch.optim.SGD, **{"lr": RATE, **sgd})
    return LocalTraining(
        optimizer=optimizer, local_epochs=None, local_steps=STEPS, batch_size=None, max_grad_norm=clip
    )


def quadratics(**sgd: float) -> InlineGrid:
    model, local = Point(), training(**sgd)

    def node(message: Message, context: Context) -> Node:
        k = int(context.node_config["partition-id"])
        roots = CURVATURES[k].sqrt()
        examples = Examples(torch.diag(roots), (roots * TARGETS[k])[:, None], torch.arange(2))
        return Node(model, local, LeastSquares(2), examples, examples)

    return InlineGrid(client_app(node), len(TARGETS))


def start() -> ArrayRecord:
    return ArrayRecord(Point().state_dict())


def reached(strategy: FedAvg | Scaffold, rounds: int, **sgd: float) -> np.ndarray:
    return play(strategy, quadratics(**sgd), start(), range(1, rounds + 1))[-1][0]["w"].numpy()[:, 0]
