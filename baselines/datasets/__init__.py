"""Data sets: one function and one file in ``conf/dataset`` each."""

from .cmnist import cmnist, cmnist_maps
from .dataset import Dataset
from .digits import digits
from .femnist import femnist
from .from_torch import from_torch
from .hub import hub
from .images import TorchvisionImages, image_classification
from .local import local
from .mnist_writers import mnist_writers
from .relabelled import relabelled
from .rotmnist import rotmnist, rotmnist_nodes
from .speech import speech
from .synthetic import synthetic
from .text import text

__all__ = [
    "Dataset",
    "TorchvisionImages",
    "cmnist",
    "cmnist_maps",
    "digits",
    "femnist",
    "from_torch",
    "hub",
    "image_classification",
    "local",
    "mnist_writers",
    "relabelled",
    "rotmnist",
    "rotmnist_nodes",
    "speech",
    "synthetic",
    "text",
]
