"""rotmnist, FedRotMNIST: digits whose angle is spuriously correlated with their label.

Tenison: *Generalization in Federated Learning*, 2022, section 4.2, after Francis et al. (2021): in training
each digit is rotated by its own angle, "padding on rotation and cropping"; test images are upright.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from baselines.errors import UserError
from clients import Classification, Normalize
from strategies.shared.checks import require

from .cache import Arrays
from .dataset import Dataset, parts
from .images import TorchvisionImages


def rotmnist(
    images: TorchvisionImages, angles: list[float], padding: int, mean: list[float], std: list[float]
) -> Dataset:
    """Return the digits with turned training images.

    Parameters
    ----------
    images : upright digits
    angles : degrees counter-clockwise, one per label
    padding : black pixels added on every side before the rotation; the centre is cut out afterwards
    mean, std : per channel, of pixels in [0, 1]
    """
    require(padding >= 0, "dataset.load.padding", padding, "0 or above")
    arrays = images.derive("rotmnist", (angles, padding), partial(_turn, angles=angles, padding=padding))
    return Dataset(*parts(arrays), task=Classification(), transform=Normalize(tuple(mean), tuple(std)))


def _turn(upright: Arrays, angles: list[float], padding: int) -> dict[str, np.ndarray]:
    arrays = {name: tensor.numpy() for name, tensor in upright.items()}
    inputs, labels = upright["train_inputs"], upright["train_targets"]
    if int(labels.max()) >= len(angles):
        raise UserError(
            f"dataset.load.angles has {len(angles)} angles, but there are labels up to {labels.max()}"
        )
    turned = torch.empty_like(inputs)
    for label, angle in enumerate(angles):
        mine = labels == label
        turned[mine] = turn(inputs[mine], angle, padding)
    return arrays | {"train_inputs": turned.numpy()}


def turn(images: Tensor, angle: float, padding: int) -> Tensor:
    """Pad images [n, C, H, W], turn them by ``angle`` degrees (bilinear), cut out their centre."""
    from torchvision.transforms import InterpolationMode
    from torchvision.transforms.functional import center_crop, pad, rotate

    wide = rotate(pad(images, [padding]), angle, InterpolationMode.BILINEAR)
    size: list[int] = list(images.shape[-2:])
    return center_crop(wide, size)


# rotmnist_nodes, another reading of FedRotMNIST: each node sees all of its digits rotated by one angle.
#
# Tenison: *Generalization in Federated Learning*, 2022, section 4.2: "the spurious mechanism at each train client
# is unique to itself", and test images are upright. The ten angles would also fit ten nodes. In
# :mod:`~baselines.datasets.rotmnist` an angle belongs to a digit, the same on all nodes.


def rotmnist_nodes(
    images: TorchvisionImages, angles: list[float], padding: int, mean: list[float], std: list[float]
) -> Dataset:
    """Return the digits, which each node's transform rotates.

    Parameters
    ----------
    images : upright digits
    angles : degrees counter-clockwise; node k sees all of its digits turned by the one at k, from the first
        again after the last
    padding : black pixels added on every side before the rotation; the centre is cut out afterwards
    mean, std : per channel, of pixels in [0, 1]
    """
    require(padding >= 0, "dataset.load.padding", padding, "0 or above")
    if not angles:
        raise UserError("dataset.load.angles is empty: expected degrees, one or more")
    normalize = Normalize(tuple(mean), tuple(std))
    return Dataset(
        *parts(images.read()),
        task=Classification(),
        transform=normalize,
        node_transform=partial(_of_node, tuple(angles), padding, normalize),
    )


@dataclass(frozen=True)
class ImageRotation:
    """Turn raw images [n, C, H, W], and normalise them.

    Parameters
    ----------
    angle : degrees counter-clockwise
    padding : black pixels added on every side before the rotation; the centre is cut out afterwards
    then : normalises the turned images
    """

    angle: float
    padding: int
    then: Normalize

    def __call__(self, inputs: Tensor) -> Tensor:
        """Turn and normalise a batch."""
        return self.then(turn(inputs, self.angle, self.padding))


def _of_node(
    angles: Sequence[float], padding: int, normalize: Normalize, partition_id: int
) -> ImageRotation:
    """Return how one node sees."""
    return ImageRotation(angles[partition_id % len(angles)], padding, normalize)
