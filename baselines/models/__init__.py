"""Models: plain ``nn.Module`` classes, one file in ``conf/model`` each.

``resnet`` is not imported here: it needs torchvision, which takes a second to import.
"""

from .char_lstm import CharLstm
from .cnn4 import Cnn4
from .cnn6 import Cnn6
from .emnist_cnn import EmnistCnn
from .lenet import LeNet
from .linear import LinearRegression, SoftmaxRegression
from .mlp import Mlp
from .we_cnn import WeCnn

__all__ = [
    "CharLstm",
    "Cnn4",
    "Cnn6",
    "EmnistCnn",
    "LeNet",
    "LinearRegression",
    "Mlp",
    "SoftmaxRegression",
    "WeCnn",
]
