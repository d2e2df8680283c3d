"""A personal model: the server's, mixed with where the node's round ended."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from flwr.app import RecordDict
from torch import nn

from clients import Examples, LocalUpdate, Personal, Task
from strategies.shared.arrays import to_array_record, values_of

KEY = "blend"  # of the node's state


@dataclass(frozen=True)
class Blend(Personal):
    """A node is judged by share w[t,k] + (1 - share) w; 0 is FedAvg."""

    remembers: ClassVar[bool] = True
    share: float = 0.5

    def train(self, update: LocalUpdate) -> dict[str, float]:
        metrics = update.run()
        named = update.model.named_parameters()
        own = {name: p.detach().clone() for name, p in named}
        assert update.memory is not None
        update.memory[KEY] = to_array_record(own)
        return metrics

    @torch.no_grad()
    def personalise(
        self,
        model: nn.Module,
        examples: Examples,
        task: Task,
        batch_size: int | None,
        state: RecordDict,
    ) -> None:
        if KEY in state:  # not before the node's first round
            own = state.array_records[KEY]
            for name, p in model.named_parameters():
                p.lerp_(values_of(own[name]).to(p), self.share)
