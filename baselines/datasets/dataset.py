"""What every data set is: tensors in memory, a transform for batches, and a task."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from clients import Task
from clients.augment import Augmentation
from clients.examples import Transform


@dataclass(frozen=True)
class Dataset:
    """A data set, held as tensors.

    Parameters
    ----------
    train_inputs, train_targets, test_inputs, test_targets : rows of raw values (uint8 for images)
    task : what models are trained for on it
    transform : turns a batch of raw inputs into what a model takes; None leaves them as they are
    owners : for each training row the partition it belongs to by nature, 0 ... N-1; None without one
    augment : changes transformed batches at random in training
    node_transform : the transform of the node with a given partition id, where nodes see differently;
        None where all of them see with ``transform``
    num_classes : where the data, not the configuration, know it
    """

    train_inputs: Tensor
    train_targets: Tensor
    test_inputs: Tensor
    test_targets: Tensor
    task: Task
    transform: Transform | None = None
    owners: np.ndarray | None = None
    augment: Augmentation | None = None
    node_transform: Callable[[int], Transform] | None = None
    num_classes: int | None = None


def parts(arrays: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return a data set's tensors in the order of :class:`Dataset`, from a mapping by their names."""
    return (
        arrays["train_inputs"],
        arrays["train_targets"],
        arrays["test_inputs"],
        arrays["test_targets"],
    )
