"""A perceptron with one hidden layer."""

from math import prod

import torch
from torch import Tensor, nn

from strategies.shared.checks import require

from .shapes import kaiming


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


# Linear models.


class SoftmaxRegression(nn.Module):
    """Multinomial logistic regression: 7,850 parameters on 28x28 images with ten classes."""

    def __init__(self, input_shape: list[int], num_classes: int) -> None:
        super().__init__()
        self.fc = nn.Linear(prod(input_shape), num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits [n, classes]."""
        return self.fc(x.flatten(1))


class LinearRegression(nn.Module):
    """y = A w without a bias, w = 0 at the start (FedExP's synthetic problem)."""

    def __init__(self, input_shape: list[int], dtype: str) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(prod(input_shape), 1, dtype=getattr(torch, dtype)))

    def forward(self, x: Tensor) -> Tensor:
        """Return A w, [n, 1]."""
        return x @ self.w
