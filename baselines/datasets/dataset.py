"""Dataset: tensors in memory, a transform for batches, and a task."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from baselines.errors import UserError
from clients import Task
from clients.augment import Augmentation
from clients.examples import Inputs, Transform, apply_to_each, count_rows

from .tokens import TextEncoder

ROWS = {  # inputs, and the fields with as many rows
    "train_inputs": ("train_targets", "labels", "owners"),
    "test_inputs": ("test_targets", "test_labels"),
}


@dataclass(frozen=True)
class Dataset:
    """A data set, held as tensors.

    Parameters
    ----------
    train_inputs, train_targets, test_inputs, test_targets : rows of raw values (uint8 for images), as
        tensors or numpy arrays; inputs that do not fit in memory are :class:`~clients.LazyRows`. Several
        inputs are a tuple or a dict of these: the model's positional arguments, or its keywords
    task : what models are trained for
    transform : turns a batch of raw inputs into the model's; None leaves them unchanged
    labels, test_labels : each row's label for partitioners, 0, 1, ...; None: its target
    owners : each training row's natural partition, 0 ... N-1; None without one
    augment : changes transformed batches at random in training
    node_transform : the transform of a node, given its partition id, if nodes differ from each other or from
        the test set; None if all use ``transform``
    num_classes : if known from the data, not from the configuration
    site : reads a site's own ``inputs`` and ``targets``, if nodes have their own data; the tensors here then
        have no rows
    encoder : turns texts into rows of inputs, if the inputs were texts
    """

    train_inputs: Inputs
    train_targets: Tensor
    test_inputs: Inputs
    test_targets: Tensor
    task: Task
    transform: Transform | None = None
    owners: np.ndarray | None = None
    augment: Augmentation | None = None
    node_transform: Callable[[int], Transform] | None = None
    num_classes: int | None = None
    site: Callable[[Path], Mapping[str, Tensor]] | None = None
    labels: np.ndarray | None = None
    test_labels: np.ndarray | None = None
    encoder: TextEncoder | None = None

    def __post_init__(self) -> None:
        """Turn arrays into tensors; refuse other types, and numbers of rows that differ from the inputs'."""
        for name in ("train_inputs", "train_targets", "test_inputs", "test_targets"):
            object.__setattr__(self, name, _as_tensors(name, getattr(self, name)))
        train, test = map(_describe, (self.train_inputs, self.test_inputs))
        if train != test:
            raise UserError(
                f"the data set's train_inputs are {train}, and its test_inputs {test}: expected the same"
            )
        for inputs, names in ROWS.items():
            rows = count_rows(getattr(self, inputs))
            for name in names:
                values = getattr(self, name)
                if values is not None and len(values) != rows:
                    raise UserError(
                        f"the data set has {rows} {inputs} and {len(values)} {name}: expected as many"
                    )

    @property
    def input_shape(self) -> Any:
        """The shape of one input as a list; for several inputs, a tuple or dict of lists."""
        return apply_to_each(lambda values: list(values.shape[1:]), self.train_inputs)

    def labels_of(self, part: str) -> np.ndarray | None:
        """Return the labels for partitioners in ``train`` or ``test``; None if there are none."""
        labels, targets = {
            "train": (self.labels, self.train_targets),
            "test": (self.test_labels, self.test_targets),
        }[part]
        if labels is not None or targets.numel() != len(targets) or targets.is_floating_point():
            return labels
        return targets.flatten().numpy()


def _describe(inputs: Inputs) -> str:
    if isinstance(inputs, Mapping):
        return f"a dict of {sorted(inputs)}"
    return f"a tuple of {len(inputs)}" if isinstance(inputs, tuple) else "one tensor"


def _as_tensors(name: str, value: Any) -> Any:
    """Return arrays as tensors, for several inputs each of them."""
    if not (isinstance(value, tuple | Mapping) and name.endswith("inputs")):
        return _as_tensor(name, value)
    named = value.items() if isinstance(value, Mapping) else enumerate(value)
    each = {key: _as_tensor(f"{name}[{key!r}]", part) for key, part in named}
    if not each:
        raise UserError(f"the data set's {name} are empty: expected a tensor, or several of as many rows")
    if any(not isinstance(key, str) for key in each) and isinstance(value, Mapping):
        raise UserError(f"the data set's {name} are named {list(each)}: expected the model's keywords")
    if len({len(part) for part in each.values()}) > 1:
        counts = ", ".join(f"{len(part)} in {key!r}" for key, part in each.items())
        raise UserError(f"the data set's {name} have {counts}: expected as many rows in each")
    return each if isinstance(value, Mapping) else tuple(each.values())


def _as_tensor(name: str, value: Any) -> Any:
    """Return an array as a tensor, integer targets as int64; tensors and lazy rows are unchanged."""
    expected = "expected a tensor or an array of numbers, [n, ...]"
    what = f"a {type(value).__name__}"
    if isinstance(value, np.ndarray):
        what = f"an array of {value.dtype}"
        if value.dtype.kind in "iu" and name.endswith("targets"):
            value = value.astype(np.int64)
        if value.dtype.kind in "fiub":
            native = value.astype(value.dtype.newbyteorder("="), order="C", copy=not value.flags.writeable)
            value = torch.from_numpy(native) if native.dtype.itemsize <= 8 else value
    if not hasattr(value, "index_select"):  # tensors and lazy rows have it
        raise UserError(f"the data set's {name} are {what}: {expected}")
    if not len(value.shape):
        raise UserError(f"the data set's {name} are a single value: {expected}")
    return value


def parts(arrays: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return a data set's tensors in the order of :class:`Dataset`, from a mapping by their names."""
    return (
        arrays["train_inputs"],
        arrays["train_targets"],
        arrays["test_inputs"],
        arrays["test_targets"],
    )
