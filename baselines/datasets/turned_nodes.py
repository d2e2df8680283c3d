"""rotmnist_nodes, FedRotMNIST read another way: every node sees all of its digits turned by one angle.

Tenison: *Generalization in Federated Learning*, 2022, section 4.2: "the spurious mechanism at each train
client is unique to itself", and test images are upright. Ten angles are also one for each of ten nodes. In
:mod:`~baselines.datasets.rotmnist` an angle goes with a digit, the same on all nodes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from torch import Tensor

from baselines.errors import UserError
from clients import Classification, Normalize
from strategies.shared.checks import require

from .dataset import Dataset, parts
from .images import TorchvisionImages
from .rotmnist import turn


def rotmnist_nodes(
    images: TorchvisionImages, angles: list[float], padding: int, mean: list[float], std: list[float]
) -> Dataset:
    """Return the digits, to be turned by the nodes that see them.

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
class Turned:
    """Turn raw images [n, C, H, W], and normalise them.

    Parameters
    ----------
    angle : degrees counter-clockwise
    padding : black pixels added on every side before the rotation; the centre is cut out afterwards
    then : how the turned images are normalised
    """

    angle: float
    padding: int
    then: Normalize

    def __call__(self, inputs: Tensor) -> Tensor:
        """Turn and normalise a batch."""
        return self.then(turn(inputs, self.angle, self.padding))


def _of_node(angles: Sequence[float], padding: int, normalize: Normalize, partition_id: int) -> Turned:
    """Return how one node sees."""
    return Turned(angles[partition_id % len(angles)], padding, normalize)
