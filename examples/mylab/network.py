"""A model: any ``torch.nn.Module``."""

from math import prod

from torch import Tensor, nn


class Network(nn.Module):
    """One hidden layer; its arguments are what its YAML file says."""

    def __init__(
        self, input_shape: list[int], num_classes: int, hidden: int
    ) -> None:
        super().__init__()
        self.hidden = nn.Linear(prod(input_shape), hidden)
        self.out = nn.Linear(hidden, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.hidden(x.flatten(1)).relu())
