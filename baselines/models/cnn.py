"""LeNet-5, for images of 32x32 and those of 28x28.

LeCun, Bottou, Bengio, Haffner: *Gradient-Based Learning Applied to Document Recognition*, 1998, with
ReLU and max pooling as is usual today.
"""

from torch import Tensor, nn
from torch.nn.functional import batch_norm, max_pool2d

from .shapes import image_channels, kaiming


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


# cnn4: model 2 of the thesis on selective federated averaging (Liu 2019, section 3.4).
#
# The thesis describes torch's former MNIST example, whose sizes follow from its table 4.3: 250 and 5,000
# multiply-accumulates of the kernels are 10 and 20 channels.


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


# cnn6: model 3 of the thesis on selective federated averaging (Liu 2019, section 3.4).
# The text's dense layers (6272, 64, 10) and table 4.5's (128, 64, 10; 802,816 weights) together give
# 6272-128-64-10. The text might also mean batch normalisation after the output layer, which is left out.


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
    """Batch normalisation that also takes a last batch of a single example.

    One example has no variance, so the running statistics are used.
    """

    def forward(self, x: Tensor) -> Tensor:
        if len(x) > 1:
            return super().forward(x)
        return batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)


# emnist_cnn: the network for EMNIST character recognition of Reddi et al. (ICLR 2021, appendix C.2).
#
# The FedExP paper and report use it for FEMNIST.


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


# we_cnn: the network of the Weight Erosion report (Gengler, Beaussart, Yuan), as its code defines it.


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
