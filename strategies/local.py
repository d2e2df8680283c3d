"""Local training: every node trains a model of its own and shares nothing, the papers' baseline.

Reduction: :class:`~strategies.Grouped` with every node its own group.
"""

from dataclasses import dataclass

from .grouped import Grouped, Groups


@dataclass(kw_only=True, eq=False)
class LocalOnly(Grouped):
    """One group for each node."""

    def initial_groups(self, partition_ids: list[int]) -> Groups:
        """Return one group per node."""
        return {f"node{k}": (k,) for k in partition_ids}
