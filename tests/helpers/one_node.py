"""A node that fits y = a x + b at x = 1 to target 1, and what it answers."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from torch import nn
from torch.optim import SGD

from baselines.grids.inline import InlineGrid
from clients import Examples, LeastSquares, LocalTraining, Node, client_app
from strategies.shared.arrays import view_values

RATE = 0.1


@dataclass
class OneNode:
    """Its training is plain SGD of rate 0.1 with these further settings.

    A step moves a and b by 0.1 (1 - a - b), and its loss is (1 - a - b)^2.
    """

    settings: dict[str, Any]
    bias: bool = True

    def __post_init__(self) -> None:
        one = Examples(torch.ones(1, 1), torch.ones(1, 1), torch.arange(1))
        training = LocalTraining(optimizer=partial(SGD, lr=RATE), **self.settings)
        node = Node(nn.Linear(1, 1, bias=self.bias), training, LeastSquares(1), one, one)
        self.grid = InlineGrid(client_app(lambda *_: node), 1)
        (self.id,) = self.grid.get_node_ids()

    def trained(self, a: float, server_round: int) -> dict[str, float]:
        """Return the parameters that it sends back for (a, 0)."""
        arrays = self._answered(a, server_round, "train").array_records["arrays"]
        return {name: view_values(array).item() for name, array in arrays.items()}

    def loss(self, a: float) -> float:
        """Return the loss by which it is judged when it is sent (a, 0)."""
        return float(self._answered(a, 1, "evaluate").metric_records["metrics"]["loss"])  # type: ignore[arg-type]

    def kept(self, record: str) -> dict[str, float]:
        """Return what it keeps."""
        arrays = self.grid.context(self.id).state.array_records[record]
        return {name: view_values(array).item() for name, array in arrays.items()}

    def _answered(self, a: float, server_round: int, kind: str) -> RecordDict:
        values = {"weight": torch.tensor([[a]])} | ({"bias": torch.zeros(1)} if self.bias else {})
        content = RecordDict(
            {"arrays": ArrayRecord(values), "config": ConfigRecord({"server-round": server_round})}  # type: ignore[arg-type]
        )
        (reply,) = self.grid.send_and_receive([Message(content, self.id, kind)])
        assert not reply.has_error(), reply.error
        return reply.content
