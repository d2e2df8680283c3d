"""What every data set is: tensors in memory, a transform for batches, and a task."""

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from clients import Task
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
    """

    train_inputs: Tensor
    train_targets: Tensor
    test_inputs: Tensor
    test_targets: Tensor
    task: Task
    transform: Transform | None = None
    owners: np.ndarray | None = None
