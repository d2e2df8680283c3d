"""Linear models."""

from math import prod

import torch
from torch import Tensor, nn


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
