"""Stand-ins for the server's examples, for tests of strategies."""

from collections.abc import Callable, Mapping, Sequence

import torch
from flwr.app import ArrayRecord
from torch import Tensor

from strategies import ServerData


class Functions(ServerData):
    """Computes what the functions say."""

    def __init__(
        self,
        correctness: Callable[[Sequence[ArrayRecord]], Tensor] | None = None,
        gradient: Callable[[ArrayRecord], ArrayRecord] | None = None,
    ) -> None:
        self.correctness, self.gradient = correctness, gradient

    def compute_correctness(self, models: Sequence[ArrayRecord]) -> Tensor:
        assert self.correctness is not None
        return self.correctness(models)

    def compute_gradient(self, model: ArrayRecord) -> ArrayRecord:
        assert self.gradient is not None
        return self.gradient(model)


class Products(ServerData):
    """Takes x times the first numbers of an array for the logits of an input x: element by element."""

    def __init__(self, name: str, inputs: Sequence[float], classes: int = 2) -> None:
        self.name, self.inputs, self.classes = name, torch.tensor(inputs), classes
        self.seen: list[list[int]] = []  # the rows of each call

    @property
    def num_inputs(self) -> int:
        return len(self.inputs)

    def compute_outputs(self, arrays: Mapping[str, Tensor], rows: Tensor) -> Tensor:
        self.seen.append(rows.tolist())
        w = arrays[self.name].flatten()[: self.classes]
        return self.inputs[rows].to(w)[:, None] * w
