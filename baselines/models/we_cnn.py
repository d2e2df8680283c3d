"""we_cnn: the network of the Weight Erosion report (Gengler, Beaussart, Yuan), as its code defines it."""

from torch import Tensor, nn

from .shapes import image_channels


class WeCnn(nn.Module):
    """Convolutions of 32, 64 and 128 channels (3x3, stride 2), then 2048-128-classes.

    With ten classes it has 356,234 parameters. It returns logits, where the authors return their
    log-softmax: the same under cross-entropy.
    """

    def __init__(self, input_shape: list[int], num_classes: int) -> None:
        super().__init__()
        channels = image_channels("we_cnn", input_shape, 28)
        self.conv1 = nn.Conv2d(channels, 32, 3, stride=2, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3, stride=2, padding=1)
        self.conv3 = nn.Conv2d(64, 128, 3, stride=2, padding=1)
        self.fc1 = nn.Linear(128 * 4 * 4, 128)
        self.fc2 = nn.Linear(128, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits [n, classes]."""
        x = self.conv1(x).relu()
        x = self.conv2(x).relu()
        x = self.conv3(x).relu()
        return self.fc2(self.fc1(x.flatten(1)).relu())
