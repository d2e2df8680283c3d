"""cmnist, FedCMNIST: digits whose colour is spuriously correlated with their label.

Tenison: *Generalization in Federated Learning*, 2022, section 4.2, after Arjovsky et al. (2019): a digit
has one colour in all training data, and another one in the test set; each node also has its own spurious
mechanism. The thesis leaves open which colours, how strict the rule, and how nodes differ. Here there are
ten hues, and nine in ten digits have that of their label. In the test set digit d has the hue of digit d +
5, and each node sees all hues rotated by its own small angle.
"""

import colorsys
import math
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
import torch
from torch import Tensor

from baselines.errors import UserError
from clients import Classification, Normalize
from strategies.shared.checks import require
from strategies.shared.seeding import Purpose, generator

from .cache import Arrays
from .dataset import Dataset, parts
from .images import TorchvisionImages


def cmnist(
    images: TorchvisionImages,
    hues: list[float],
    strength: float,
    test_shift: int,
    node_turn: float,
    colour_seed: int,
    mean: list[float],
    std: list[float],
) -> Dataset:
    """Return the digits in colour, [N, 3, 28, 28].

    Parameters
    ----------
    images : grey digits
    hues : degrees on the colour wheel (0 red, 120 green, 240 blue), one per label
    strength : the probability that a training digit has its label's hue, otherwise any other one
    test_shift : test digit d has the hue of label (d + test_shift) mod 10; 0 keeps the training colours
    node_turn : each node's angle is drawn from +-node_turn degrees; 0: all nodes see the same colours
    colour_seed : decides the drawn colours and angles, whatever the experiment's seed
    mean, std : per channel, of pixels in [0, 1]
    """
    require(0 <= strength <= 1, "dataset.load.strength", strength, "a fraction in [0, 1]")
    require(node_turn >= 0, "dataset.load.node_turn", node_turn, "0 or above, in degrees")
    if not hues:
        raise UserError("dataset.load.hues is empty: expected one hue per label")
    paint = partial(_paint, hues=hues, strength=strength, test_shift=test_shift, seed=colour_seed)
    arrays = images.derive("cmnist", (hues, strength, test_shift, colour_seed), paint)
    normalize = Normalize(tuple(mean), tuple(std))
    return Dataset(
        *parts(arrays),
        task=Classification(),
        transform=normalize,
        node_transform=partial(_rotate_for_node, normalize, node_turn, colour_seed) if node_turn else None,
    )


@dataclass(frozen=True)
class ColourRotation:
    """Turn the colours of raw images [n, 3, H, W] about the grey axis; grey stays grey.

    Parameters
    ----------
    angle : in degrees, from red towards green
    then : normalises the images
    """

    angle: float
    then: Normalize

    def __call__(self, inputs: Tensor) -> Tensor:
        """Turn and normalise a batch; colours are clipped to their range."""
        colours = torch.einsum("ij,njhw->nihw", _matrix(self.angle, inputs.device), inputs.float())
        return self.then(colours.clamp_(0, 255))


@lru_cache(maxsize=1024)
def _matrix(angle: float, device: torch.device) -> Tensor:
    """Return the rotation matrix [3, 3] of a colour by ``angle`` degrees, cached for each node."""
    cos, sin = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    across = torch.tensor([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]])
    return (cos * torch.eye(3) + (1 - cos) / 3 + sin / math.sqrt(3) * across).to(device)


def _rotate_for_node(
    normalize: Normalize, node_turn: float, seed: int, partition_id: int
) -> ColourRotation:
    """Return how one node sees."""
    rng = generator(seed, Purpose.NODE_COLOUR, partition_id=partition_id)
    return ColourRotation(rng.uniform(-node_turn, node_turn), normalize)


def _paint(
    grey: Arrays, hues: list[float], strength: float, test_shift: int, seed: int
) -> dict[str, np.ndarray]:
    """Give every image one colour, scaled by its grey values."""
    palette = np.array([colorsys.hsv_to_rgb(hue / 360 % 1, 1, 1) for hue in hues])
    arrays = {name: tensor.numpy() for name, tensor in grey.items()}
    train, test = arrays["train_targets"], arrays["test_targets"]
    if train.max() >= len(hues):
        raise UserError(f"dataset.load.hues has {len(hues)} hues, but there are labels up to {train.max()}")
    rng = generator(seed, Purpose.COLOUR)
    others = (train + rng.integers(1, max(len(hues), 2), len(train))) % len(hues)
    colours = {
        "train_inputs": np.where(rng.random(len(train)) < strength, train, others),
        "test_inputs": (test + test_shift) % len(hues),
    }
    for name, colour in colours.items():
        painted = np.empty((len(colour), 3, *arrays[name].shape[2:]), dtype=np.uint8)
        for number, rgb in enumerate(palette):
            mine = colour == number
            painted[mine] = np.rint(arrays[name][mine] * rgb[:, None, None].astype(np.float32))
        arrays[name] = painted
    return arrays


# cmnist_maps, another reading of FedCMNIST: every node has its own colour for each digit.
#
# Tenison: *Generalization in Federated Learning*, 2022, section 4.2: "the spurious mechanism at each train client
# is unique to itself", and the test set has one "that was not present in any of the train clients". Here each
# node draws a colour for each digit, and so does the test set; on a node a digit's colour is always the same. In
# :mod:`~baselines.datasets.cmnist` all nodes share nearly the same colours.


def cmnist_maps(
    images: TorchvisionImages, colour_seed: int, mean: list[float], std: list[float]
) -> Dataset:
    """Return the digits, which each node's transform paints, [N, 3, 28, 28].

    Parameters
    ----------
    images : grey digits
    colour_seed : decides which digit has which colour, at each node and in the test set
    mean, std : per channel, of pixels in [0, 1]
    """
    arrays = images.derive("cmnist_maps", "grey, label, nothing", _add_label_channel)
    labels = int(arrays["train_targets"].max()) + 1
    normalize = Normalize(tuple(mean), tuple(std))
    return Dataset(
        *parts(arrays),
        task=Classification(),
        transform=_draw_colours(labels, generator(colour_seed, Purpose.COLOUR), normalize),
        node_transform=partial(_of_node, labels, colour_seed, normalize),
    )


@dataclass(frozen=True)
class Painted:
    """Paint images [n, 3, H, W], whose channels are grey, label and zeros, with their label's colour.

    Parameters
    ----------
    palette : red, green and blue in [0, 1], by label
    then : normalises the painted images [n, 3, H, W]
    """

    palette: tuple[tuple[float, float, float], ...]
    then: Normalize

    def __call__(self, inputs: Tensor) -> Tensor:
        """Paint and normalise a batch."""
        colours = _tensor(self.palette, inputs.device)[inputs[:, 1, 0, 0].long()]
        return self.then(inputs[:, :1].float() * colours[:, :, None, None])


@lru_cache(maxsize=1024)
def _tensor(palette: tuple[tuple[float, float, float], ...], device: torch.device) -> Tensor:
    """Return a palette [labels, 3] as a tensor, cached for each node."""
    return torch.tensor(palette, device=device)


def _add_label_channel(grey: Arrays) -> dict[str, np.ndarray]:
    """Put the label into a channel, since a transform sees only inputs; the shape is that of colour images."""
    arrays = {name: tensor.numpy() for name, tensor in grey.items()}
    for part in ("train", "test"):
        images, labels = arrays[f"{part}_inputs"], arrays[f"{part}_targets"]
        plane = np.broadcast_to(labels[:, None, None, None], images.shape).astype(np.uint8)
        arrays[f"{part}_inputs"] = np.concatenate([images, plane, np.zeros_like(images)], axis=1)
    return arrays


def _of_node(labels: int, seed: int, normalize: Normalize, partition_id: int) -> Painted:
    """Return how one node sees."""
    return _draw_colours(labels, generator(seed, Purpose.NODE_COLOUR, partition_id=partition_id), normalize)


def _draw_colours(labels: int, rng: np.random.Generator, normalize: Normalize) -> Painted:
    """Draw a colour for each label: red, green and blue in [0, 1]."""
    return Painted(tuple((r, g, b) for r, g, b in rng.random((labels, 3)).tolist()), normalize)
