"""LeNet-5, for images of 32x32 and those of 28x28.

LeCun, Bottou, Bengio, Haffner: *Gradient-Based Learning Applied to Document Recognition*, 1998, with
ReLU and max pooling as is usual today.
"""

from torch import Tensor, nn
from torch.nn.functional import max_pool2d

from .shapes import image_channels


class LeNet(nn.Module):
    """Convolutions of 6 and 16 channels (5x5), then 120-84-classes.

    With ten classes it has 61,706 parameters, 62,006 with three input channels. Images of 28x28 are padded
    with zeros to the 32x32 that it was made for.
    """

    def __init__(self, input_shape: list[int], num_classes: int) -> None:
        super().__init__()
        channels = image_channels("lenet", input_shape, 28, 32)
        self.conv1 = nn.Conv2d(channels, 6, 5, padding=(32 - input_shape[1]) // 2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits [n, classes]."""
        x = max_pool2d(self.conv1(x).relu(), 2)
        x = max_pool2d(self.conv2(x).relu(), 2)
        x = self.fc1(x.flatten(1)).relu()
        return self.fc3(self.fc2(x).relu())
