"""A model small enough for many runs in a test."""

from torch import Tensor, nn


class Convolutional(nn.Module):
    """One convolution and one dense layer, for the digits' 8x8 images."""

    def __init__(self, input_shape: list[int], num_classes: int, **ignored: object) -> None:
        super().__init__()
        self.conv = nn.Conv2d(input_shape[0], 6, 3, stride=2)
        self.out = nn.Linear(6 * 3 * 3, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits [n, classes]."""
        return self.out(self.conv(x).relu().flatten(1))
