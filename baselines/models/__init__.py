"""Models: plain ``nn.Module`` classes, one file in ``conf/model`` each.

``resnet`` is not imported here: it needs torchvision, which takes a second to import.
"""

from .char_lstm import CharLstm
from .cnn import Cnn4, Cnn6, EmnistCnn, LeNet, WeCnn
from .mlp import LinearRegression, Mlp, SoftmaxRegression

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
