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
    keeps_arrays: ClassVar[bool] = False  # whether arrays reach nodes, and replies the server, as they are
    dispatch: "Dispatch | None" = None  # deals tasks to workers that live as long as the run
    way: Mapping[str, Any] = {}  # what environment.json says of how nodes train
    lost: int = 0  # messages that were never answered, because every worker died that took them

    def node_states(self) -> dict[int, RecordDict] | None:
        """Return what each node keeps, by partition id; None where the grid cannot tell."""
        return None

    def deployment(self) -> dict[str, str]:
        """Return what identifies the run in Flower; empty where Flower does not run it."""
        return {}

    def used(self) -> list[dict[str, Any]]:
        """Return what each of the nodes' own processes says of its steps and its memory; empty without."""
        return []

    def load_node_states(self, states: dict[int, RecordDict]) -> None:
        """Give each node what it kept."""
        raise NotImplementedError(f"{type(self).__name__} cannot restore the nodes' states")
