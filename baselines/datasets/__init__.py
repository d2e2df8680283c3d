"""Data sets: one function and one file in ``conf/dataset`` each."""

from .dataset import Dataset
from .digits import digits
from .images import torchvision_images
from .synthetic import synthetic

__all__ = ["Dataset", "digits", "synthetic", "torchvision_images"]
