"""cnn4: model 2 of the thesis on selective federated averaging (Liu 2019, section 3.4).

The thesis describes torch's former MNIST example, whose sizes follow from its table 4.3: 250 and 5,000
multiply-accumulates of the kernels are 10 and 20 channels.
"""

from torch import Tensor, nn
from torch.nn.functional import max_pool2d

from .initial import kaiming
from .shapes import image_channels


class Cnn4(nn.Module):
    """Convolutions of 10 and 20 channels (5x5), then 320-50-classes; 21,840 parameters for ten classes.

    Dropout of 0.5 after the second convolution (whole channels) and after the hidden layer; He's
    initialisation.
    """

    def __init__(self, input_shape: list[int], num_classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(image_channels("cnn4", input_shape, 28), 10, 5)
        self.conv2 = nn.Conv2d(10, 20, 5)
        self.drop2 = nn.Dropout2d(0.5)
        self.fc1 = nn.Linear(20 * 4 * 4, 50)
        self.drop3 = nn.Dropout(0.5)
        self.fc2 = nn.Linear(50, num_classes)
        kaiming(self)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits [n, classes]."""
        x = max_pool2d(self.conv1(x), 2).relu()
        x = max_pool2d(self.drop2(self.conv2(x)), 2).relu()
        x = self.drop3(self.fc1(x.flatten(1)).relu())
        return self.fc2(x)
