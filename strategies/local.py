"""Local training: every node trains a model of its own and shares nothing, the papers' baseline.

Reduction: :class:`~strategies.Grouped` with every node its own group.
"""

from dataclasses import dataclass
from typing import ClassVar

from .grouped import Grouped, Groups


@dataclass(kw_only=True, eq=False)
class LocalOnly(Grouped):
    """One group for each node."""

    stays_alone: ClassVar[bool] = True  # whether nodes train by themselves to the end

    def __post_init__(self) -> None:
        """Refuse parts that compare nodes: a single one has nothing to be compared with."""
        super().__post_init__()
        if self.groups is None:
            self._build(self.initial_groups([0]))
        if self.stays_alone:
            try:
                self.inner.mask.require_nodes(1)
            except ValueError as error:
                raise ValueError(f"{self.name} trains every node by itself: {error}") from error

    def initial_groups(self, partition_ids: list[int]) -> Groups:
        """Return one group per node."""
        return {f"node{k}": (k,) for k in partition_ids}
