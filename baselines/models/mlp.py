"""A perceptron with one hidden layer."""

from math import prod

from torch import Tensor, nn

from strategies.checks import require


class Mlp(nn.Module):
    """inputs - hidden - classes, with ReLU between."""

    def __init__(self, input_shape: list[int], num_classes: int, hidden: int) -> None:
        super().__init__()
        require(hidden >= 1, "model.hidden", hidden, "1 or more")
        self.hidden = nn.Linear(prod(input_shape), hidden)
        self.out = nn.Linear(hidden, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits [n, classes]."""
        return self.out(self.hidden(x.flatten(1)).relu())
