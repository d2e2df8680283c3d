"""Image sets as torchvision reads them: MNIST and its like, held as uint8 tensors [N, C, H, W]."""

from collections.abc import Callable
from typing import Any
from urllib.error import URLError

import torch
from torch import Tensor

from baselines.errors import UserError
from clients import Classification, Normalize

from .dataset import Dataset


def torchvision_images(
    source: Callable[..., Any], root: str, download: bool, mean: list[float], std: list[float]
) -> Dataset:
    """Read a torchvision data set from the folder ``root``, downloading it when allowed.

    Parameters
    ----------
    source : the torchvision class, e.g. ``torchvision.datasets.MNIST``
    mean, std : per channel, of pixels in [0, 1]

    Raises
    ------
    UserError : when it is neither in ``root`` nor to be had by download
    """
    try:
        train = source(root=root, train=True, download=download)
        test = source(root=root, train=False, download=download)
    except (RuntimeError, URLError, OSError) as error:
        name = getattr(source, "func", source).__name__
        tried = "could not be downloaded" if download else "download=false"
        raise UserError(
            f"data set {name} is not in {root} ({tried}: {' '.join(str(error).split())}); put it there, "
            "set data_root to the folder that holds it, or try dataset=digits, which needs no network"
        ) from error
    train_x, train_y = _tensors(train)
    test_x, test_y = _tensors(test)
    return Dataset(train_x, train_y, test_x, test_y, Classification(), Normalize(tuple(mean), tuple(std)))


def _tensors(source: Any) -> tuple[Tensor, Tensor]:
    """Return images [N, C, H, W] and labels [N] of a torchvision data set."""
    images = torch.as_tensor(source.data)
    images = images[:, None] if images.ndim == 3 else images.movedim(3, 1).contiguous()
    return images, torch.as_tensor(source.targets)
