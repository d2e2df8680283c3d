"""Models: plain ``nn.Module`` classes, one file in ``conf/model`` each."""

from .lenet import LeNet
from .linear import LinearRegression, SoftmaxRegression
from .mlp import Mlp

__all__ = ["LeNet", "LinearRegression", "Mlp", "SoftmaxRegression"]
