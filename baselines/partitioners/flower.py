"""The partitions that flwr-datasets has, from the labels alone."""

import sys
import warnings
from functools import cache
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from typing import Any

import numpy as np

from baselines.errors import UserError
from strategies.shared.checks import require
from strategies.shared.seeding import Purpose, generator

from .partitioner import Partitioner


class Iid(Partitioner):
    """A random and equal share of the data for every node."""

    needs_labels = False

    def __call__(
        self, labels: np.ndarray, owners: np.ndarray | None, num_nodes: int, seed: int
    ) -> list[np.ndarray]:
        """Shuffle, then cut into parts of equal size.

        NumPy's cut is flwr-datasets' ``IidPartitioner``'s, which takes milliseconds for each node.
        """
        order = generator(seed, Purpose.PARTITION).permutation(len(labels))
        return [np.sort(part) for part in np.array_split(order, num_nodes)]


class Dirichlet(Partitioner):
    """Each label is shared out in proportions drawn from Dirichlet(alpha) (Yurochkin et al. 2019).

    Parameters
    ----------
    alpha : concentration above 0; small is skewed, large is nearly iid
    min_size : draw again until every node has this many examples
    """

    def __init__(self, alpha: float, min_size: int) -> None:
        require(0 < alpha < float("inf"), "partitioner.alpha", alpha, "above 0")
        require(min_size >= 1, "partitioner.min_size", min_size, "1 or more")
        self.alpha = alpha
        self.min_size = min_size

    def __call__(
        self, labels: np.ndarray, owners: np.ndarray | None, num_nodes: int, seed: int
    ) -> list[np.ndarray]:
        """Draw the shares; sizes are unequal."""
        if self.min_size * num_nodes > len(labels):
            raise UserError(
                f"partitioner.min_size={self.min_size} for each of num_nodes={num_nodes} nodes is more "
                f"than the {len(labels)} training examples: lower one of them"
            )
        partitioner = _partitioners().DirichletPartitioner(
            num_nodes,
            partition_by="label",
            alpha=float(self.alpha),
            min_partition_size=self.min_size,
            seed=int(generator(seed, Purpose.PARTITION).integers(2**31)),
        )
        try:
            return _partition(partitioner, labels)
        except ValueError as error:
            raise UserError(
                f"partitioner=dirichlet with alpha={self.alpha} leaves a node of {num_nodes} with fewer "
                f"than partitioner.min_size={self.min_size} examples: raise alpha, or lower min_size or "
                "num_nodes"
            ) from error


def _partition(partitioner: Any, labels: np.ndarray) -> list[np.ndarray]:
    """Let a flwr-datasets partitioner divide the rows; return row numbers."""
    from datasets import Dataset

    class Rows(Dataset):  # type: ignore[misc]
        """A column of labels that is read as one array, and whose selections are row numbers.

        The general ones take seconds for the column and milliseconds for each selection.
        """

        def __getitem__(self, key: Any) -> np.ndarray:
            return labels

        def select(self, indices: Any, *_: Any, **__: Any) -> np.ndarray:
            return np.sort(np.asarray(indices))

    partitioner.dataset = Rows.from_dict({"label": labels})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # one warning for each draw that is repeated
        return [partitioner.load_partition(i) for i in range(partitioner.num_partitions)]


@cache
def _partitioners() -> Any:
    """Import flwr-datasets' partitioners without the package's plots and metrics.

    Those take longer than the rest (seaborn, matplotlib, scipy), and every process that deals would wait
    for them. It leaves no trace: who imports the package later has the whole of it.
    """
    name = "flwr_datasets"
    if name in sys.modules:
        return import_module(f"{name}.partitioner")
    spec = find_spec(name)
    assert spec is not None
    sys.modules[name] = module_from_spec(spec)  # with the folder, and nothing imported
    try:
        return import_module(f"{name}.partitioner")
    finally:
        for imported in [module for module in sys.modules if module.partition(".")[0] == name]:
            del sys.modules[imported]
