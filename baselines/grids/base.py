"""The interface of grids here, beyond Flower's: tasks for workers, and access to node states."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from flwr.app import RecordDict
from flwr.serverapp import Grid

if TYPE_CHECKING:
    from .ray_pool import Dispatch


class SuiteGrid(Grid):
    """A Flower Grid; its nodes' states stay with them unless it says otherwise."""

    gives_node_states: ClassVar[bool] = False
    keeps_arrays: ClassVar[bool] = False  # whether arrays are passed on without being copied or moved
    dispatch: "Dispatch | None" = None  # sends tasks to workers that live as long as the run
    way: Mapping[str, Any] = {}  # what environment.json records of how nodes train
    lost: int = 0  # messages never answered, because each worker that tried has died

    def node_states(self) -> dict[int, RecordDict] | None:
        """Return the node states by partition id; None where the grid cannot read them."""
        return None

    def deployment(self) -> dict[str, str]:
        """Return what identifies the run in Flower; empty where Flower does not run it."""
        return {}

    def used(self) -> list[dict[str, Any]]:
        """Return the steps and memory that each worker process reports; empty without workers."""
        return []

    def load_node_states(self, states: dict[int, RecordDict]) -> None:
        """Restore each node's state."""
        raise NotImplementedError(f"{type(self).__name__} cannot restore the nodes' states")
