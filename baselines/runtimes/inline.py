"""inline: everything in this process.

No server, no workers: it starts at once, a debugger stops in client code, and one program holds the device.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from baselines.grids.inline import InlineGrid
from strategies.shared.flower_private import server_context

from . import batching


@dataclass(frozen=True)
class Inline:
    """Run everything in this process, one node after another or batched.

    Parameters
    ----------
    batch_clients : True trains the nodes of a round batched where that is possible, with the same
        results to rounding; False trains one after another, with Ray's results to the bit; auto is False
        on the CPU, and True on an accelerator for models that leave it idle, below a million parameters
    """

    batch_clients: bool | str = "auto"
    gives_node_states: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Refuse any other choice."""
        batching.check(self.batch_clients)

    def run(self, overrides: str, num_nodes: int, folder: Path) -> None:
        """Run one experiment and write its results into ``folder``."""
        from baselines.apps import client_app_of, server_app, together_of

        together = together_of(overrides) if batching.chosen(self.batch_clients, overrides) else None
        grid = InlineGrid(client_app_of(overrides), num_nodes, together)
        server_app(grid, server_context({"overrides": overrides, "output": str(folder)}))
