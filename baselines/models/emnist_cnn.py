"""emnist_cnn: the network for EMNIST character recognition of Reddi et al. (ICLR 2021, appendix C.2).

The FedExP paper and report use it for FEMNIST.
"""

from torch import Tensor, nn
from torch.nn.functional import max_pool2d

from .shapes import image_channels


class EmnistCnn(nn.Module):
    """Convolutions of 32 and 64 channels (3x3), max pooling, then 9216-128-classes.

    Dropout of 0.25 after pooling and 0.5 after the hidden layer; 1,206,590 parameters for 62 classes.
    """

    def __init__(self, input_shape: list[int], num_classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(image_channels("emnist_cnn", input_shape, 28), 32, 3)
        self.conv2 = nn.Conv2d(32, 64, 3)
        self.drop1 = nn.Dropout(0.25)
        self.fc1 = nn.Linear(64 * 12 * 12, 128)
        self.drop2 = nn.Dropout(0.5)
        self.fc2 = nn.Linear(128, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits [n, classes]."""
        x = self.conv1(x).relu()
        x = self.drop1(max_pool2d(self.conv2(x).relu(), 2))
        x = self.drop2(self.fc1(x.flatten(1)).relu())
        return self.fc2(x)
