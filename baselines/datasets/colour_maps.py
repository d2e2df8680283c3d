"""cmnist_maps, FedCMNIST read another way: every node has a colour for each digit of its own choosing.

Tenison: *Generalization in Federated Learning*, 2022, section 4.2: "the spurious mechanism at each train
client is unique to itself", and the test set has one "that was not present in any of the train clients".
Here each node draws a colour for each digit, and so does the test set; on a node a digit's colour is always
the same. In :mod:`~baselines.datasets.cmnist` all nodes share nearly the same colours.
"""

from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
import torch
from torch import Tensor

from clients import Classification, Normalize
from strategies.shared.seeding import Purpose, generator

from .cache import Arrays
from .dataset import Dataset, parts
from .images import TorchvisionImages


def cmnist_maps(
    images: TorchvisionImages, colour_seed: int, mean: list[float], std: list[float]
) -> Dataset:
    """Return the digits, to be painted [N, 3, 28, 28] by whoever sees them.

    Parameters
    ----------
    images : grey digits
    colour_seed : decides which digit has which colour, at each node and in the test set
    mean, std : per channel, of pixels in [0, 1]
    """
    arrays = images.derive("cmnist_maps", "grey, label, nothing", _labelled)
    labels = int(arrays["train_targets"].max()) + 1
    normalize = Normalize(tuple(mean), tuple(std))
    return Dataset(
        *parts(arrays),
        task=Classification(),
        transform=_painted(labels, generator(colour_seed, Purpose.COLOUR), normalize),
        node_transform=partial(_of_node, labels, colour_seed, normalize),
    )


@dataclass(frozen=True)
class Painted:
    """Paint images [n, 3, H, W], which are grey, label and nothing, with the colour of their label.

    Parameters
    ----------
    palette : red, green and blue in [0, 1], by label
    then : how the painted images [n, 3, H, W] are normalised
    """

    palette: tuple[tuple[float, float, float], ...]
    then: Normalize

    def __call__(self, inputs: Tensor) -> Tensor:
        """Paint and normalise a batch."""
        colours = _tensor(self.palette, inputs.device)[inputs[:, 1, 0, 0].long()]
        return self.then(inputs[:, :1].float() * colours[:, :, None, None])


@lru_cache(maxsize=1024)
def _tensor(palette: tuple[tuple[float, float, float], ...], device: torch.device) -> Tensor:
    """Return a palette [labels, 3], made once for each node."""
    return torch.tensor(palette, device=device)


def _labelled(grey: Arrays) -> dict[str, np.ndarray]:
    """Put the label where a colour will be, for a transform sees inputs alone; the shape stays."""
    arrays = {name: tensor.numpy() for name, tensor in grey.items()}
    for part in ("train", "test"):
        images, labels = arrays[f"{part}_inputs"], arrays[f"{part}_targets"]
        plane = np.broadcast_to(labels[:, None, None, None], images.shape).astype(np.uint8)
        arrays[f"{part}_inputs"] = np.concatenate([images, plane, np.zeros_like(images)], axis=1)
    return arrays


def _of_node(labels: int, seed: int, normalize: Normalize, partition_id: int) -> Painted:
    """Return how one node sees."""
    return _painted(labels, generator(seed, Purpose.NODE_COLOUR, partition_id=partition_id), normalize)


def _painted(labels: int, rng: np.random.Generator, normalize: Normalize) -> Painted:
    """Draw a colour for each label, red, green and blue from [0, 1] each."""
    return Painted(tuple((r, g, b) for r, g, b in rng.random((labels, 3)).tolist()), normalize)
