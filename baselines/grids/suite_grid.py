"""What grids promise here beyond Flower's: who judges models, and whether nodes' states can be had."""

from typing import ClassVar

from flwr.app import RecordDict
from flwr.serverapp import Grid

from baselines.experiment.experiment import Experiment

from .judge import Judge


class SuiteGrid(Grid):
    """A Flower Grid; its nodes' states stay with them unless it says otherwise."""

    gives_node_states: ClassVar[bool] = False
    lost: int = 0  # messages that were never answered, because every worker died that took them

    def node_states(self) -> dict[int, RecordDict] | None:
        """Return what each node keeps, by partition id; None where the grid cannot tell."""
        return None

    def judge(self, this: Experiment) -> Judge:
        """Return who judges models on the server's examples: this process."""
        return Judge(this)

    def load_node_states(self, states: dict[int, RecordDict]) -> None:
        """Give each node what it kept."""
        raise NotImplementedError(f"{type(self).__name__} cannot restore the nodes' states")
