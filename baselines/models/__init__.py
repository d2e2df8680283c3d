"""Models: plain ``nn.Module`` classes, one file in ``conf/model`` each.

``resnet`` is not imported here: it needs torchvision, which takes a second to import.
"""

from .char_lstm import CharLstm
from .cnn import Cnn4, Cnn6, EmnistCnn, LeNet, WeCnn
from .mlp import LinearRegression, Mlp, SoftmaxRegression
from .pretrained import HuggingFace, lora
from .transformer import CausalTransformer, Transformer

__all__ = [
    "CausalTransformer",
    "CharLstm",
    "Cnn4",
    "Cnn6",
    "EmnistCnn",
    "HuggingFace",
    "LeNet",
    "LinearRegression",
    "Mlp",
    "SoftmaxRegression",
    "Transformer",
    "WeCnn",
    "lora",
]
