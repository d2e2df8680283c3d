"""cnn6: model 3 of the thesis on selective federated averaging (Liu 2019, section 3.4).

The text's dense layers (6272, 64, 10) and table 4.5's (128, 64, 10; 802,816 weights) together are
6272-128-64-10. Batch normalisation after the output layer, which the text could mean too, is left out.
"""

from torch import Tensor, nn
from torch.nn.functional import batch_norm

from .initial import kaiming
from .shapes import image_channels


class Cnn6(nn.Module):
    """Convolutions of 32, 64 and 128 channels (3x3), then 6272-128-64-classes; 905,354 parameters.

    Every hidden layer is followed by batch normalisation and ReLU, the second and third convolution by
    max pooling, the hidden dense layers by dropout of 0.5; He's initialisation.
    """

    def __init__(self, input_shape: list[int], num_classes: int) -> None:
        super().__init__()
        channels = image_channels("cnn6", input_shape, 28)
        self.features = nn.Sequential(
            *_convolution(channels, 32),
            *_convolution(32, 64),
            nn.MaxPool2d(2),
            *_convolution(64, 128),
            nn.MaxPool2d(2),
        )
        self.classifier = nn.Sequential(
            *_dense(128 * 7 * 7, 128),
            *_dense(128, 64),
            nn.Linear(64, num_classes),
        )
        kaiming(self)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits [n, classes]."""
        return self.classifier(self.features(x).flatten(1))


def _convolution(channels_in: int, channels_out: int) -> list[nn.Module]:
    convolution = nn.Conv2d(channels_in, channels_out, 3, padding=1)
    return [convolution, nn.BatchNorm2d(channels_out), nn.ReLU()]


def _dense(units_in: int, units_out: int) -> list[nn.Module]:
    return [nn.Linear(units_in, units_out), _BatchNorm(units_out), nn.ReLU(), nn.Dropout(0.5)]


class _BatchNorm(nn.BatchNorm1d):
    """Batch normalisation that takes an epoch's last batch even if it is a single example.

    One example has no variance; the running statistics stand in.
    """

    def forward(self, x: Tensor) -> Tensor:
        if len(x) > 1:
            return super().forward(x)
        return batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)
