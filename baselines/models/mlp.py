"""A perceptron with one hidden layer."""

from math import prod

from torch import Tensor, nn

from strategies.shared.checks import require

from .initial import kaiming


class Mlp(nn.Module):
    """inputs - hidden - classes, with ReLU between.

    With 30 hidden units on 28x28 images and ten classes it has 23,860 parameters: model 1 of the thesis on
    selective federated averaging (Liu 2019, section 3.4), which asks for He's initialisation.

    Parameters
    ----------
    hidden : number of hidden units
    he_init : He's initialisation instead of torch's own
    """

    def __init__(self, input_shape: list[int], num_classes: int, hidden: int, he_init: bool) -> None:
        super().__init__()
        require(hidden >= 1, "model.hidden", hidden, "1 or more")
        self.hidden = nn.Linear(prod(input_shape), hidden)
        self.out = nn.Linear(hidden, num_classes)
        if he_init:
            kaiming(self)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits [n, classes]."""
        return self.out(self.hidden(x.flatten(1)).relu())
