"""digits: 1,797 real handwritten digits of 8x8 pixels, bundled with scikit-learn. Needs no network.

E. Alpaydin, C. Kaynak: *Optical Recognition of Handwritten Digits*, UCI repository, 1998.
"""

import numpy as np
import torch

from clients import Classification, Normalize

from .dataset import Dataset


def digits(mean: list[float], std: list[float], test_size: float, split_seed: int) -> Dataset:
    """Return the digits with values 0 ... 16, split into train and test by label.

    The split depends on ``split_seed`` alone, not on the experiment's seed.
    """
    from sklearn.datasets import load_digits  # takes a second, and most data sets do without
    from sklearn.model_selection import train_test_split

    bunch = load_digits()
    images = bunch.images[:, None].astype(np.uint8)
    train_x, test_x, train_y, test_y = train_test_split(
        images, bunch.target, test_size=test_size, random_state=split_seed, stratify=bunch.target
    )
    return Dataset(
        torch.from_numpy(train_x),
        torch.from_numpy(train_y),
        torch.from_numpy(test_x),
        torch.from_numpy(test_y),
        Classification(),
        Normalize(tuple(mean), tuple(std), scale=16.0),
    )
