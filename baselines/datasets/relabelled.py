"""mnist_relabelled: digits whose label means something else in each group of nodes.

Liu: *Federated Learning Model Complexity vs Robustness to non-IID data and Selective Federated Learning*,
2019, section 8.1: nodes that are "systematically different", so that "training samples from different nodes
have the same input but different output". The thesis names no such data: here groups permute labels.
"""

import torch

from clients import Classification, Normalize
from strategies.shared.checks import require

from .dataset import Dataset, parts
from .images import TorchvisionImages


def relabelled(
    images: TorchvisionImages,
    num_nodes: int,
    groups: int,
    differing: int,
    mean: list[float],
    std: list[float],
) -> Dataset:
    """Return the digits, dealt to the nodes in turn, with each group's labels; the test set has group 0's.

    Parameters
    ----------
    images : digits with their usual labels
    num_nodes : the number of owners, which ``partitioner=by_writer`` makes nodes
    groups : of nodes, as equal as possible: node k is in group floor(k * groups / num_nodes)
    differing : how many labels have another meaning in each group: group g calls digit y below this
        (y + g) mod differing; 0 for none. With fewer than ``groups`` some groups agree
    mean, std : per channel, of pixels in [0, 1]
    """
    require(1 <= groups <= num_nodes, "dataset.load.groups", groups, f"from 1 to num_nodes={num_nodes}")
    require(differing >= 0, "dataset.load.differing", differing, "0 or above")
    train_inputs, usual, test_inputs, test_targets = parts(images.read())
    owners = torch.arange(len(usual)) % num_nodes
    shifted = (usual + owners * groups // num_nodes) % max(differing, 1)
    return Dataset(
        train_inputs,
        torch.where(usual < differing, shifted, usual),
        test_inputs,
        test_targets,
        task=Classification(),
        transform=Normalize(tuple(mean), tuple(std)),
        owners=owners.numpy(),
    )
