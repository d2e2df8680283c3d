"""Data sets: one function and one file in ``conf/dataset`` each."""

from .cmnist import cmnist
from .dataset import Dataset
from .digits import digits
from .femnist import femnist
from .hub import hub
from .images import TorchvisionImages, image_classification
from .mnist_writers import mnist_writers
from .rotmnist import rotmnist
from .synthetic import synthetic

__all__ = [
    "Dataset",
    "TorchvisionImages",
    "cmnist",
    "digits",
    "femnist",
    "hub",
    "image_classification",
    "mnist_writers",
    "rotmnist",
    "synthetic",
]
