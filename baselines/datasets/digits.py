"""digits: 1,797 real handwritten digits of 8x8 pixels, bundled with scikit-learn. Needs no network.

E. Alpaydin, C. Kaynak: *Optical Recognition of Handwritten Digits*, UCI repository, 1998.
"""

from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from clients import Classification, Normalize

from .cache import load_cached, own_folder
from .dataset import Dataset, parts


def digits(mean: list[float], std: list[float], test_size: float, split_seed: int) -> Dataset:
    """Return the digits with values 0 ... 16, split into train and test by label.

    The split depends only on ``split_seed``, not on the experiment's seed. It is cached, as importing
    scikit-learn takes longer than everything else.
    """

    def build() -> dict[str, np.ndarray]:
        from sklearn.datasets import load_digits
        from sklearn.model_selection import train_test_split

        bunch = load_digits()
        images = bunch.images[:, None].astype(np.uint8)
        names = ("train_inputs", "test_inputs", "train_targets", "test_targets")
        try:
            arrays = train_test_split(
                images, bunch.target, test_size=test_size, random_state=split_seed, stratify=bunch.target
            )
        except ValueError as error:  # scikit-learn's message does not name the setting
            if "_size" not in str(error):
                raise
            raise ValueError(f"dataset.load.test_size={test_size} is out of range: {error}") from error
        return dict(zip(names, arrays, strict=True))

    settings = (test_size, split_seed, version("scikit-learn"))
    arrays = load_cached("digits", settings, own_folder(), _source(), build)
    return Dataset(*parts(arrays), Classification(), Normalize(tuple(mean), tuple(std), scale=16.0))


def _source() -> list[Path]:
    """Return the file that scikit-learn reads."""
    spec = find_spec("sklearn")
    assert spec is not None
    assert spec.origin is not None
    return [Path(spec.origin).parent / "datasets" / "data" / "digits.csv.gz"]
