"""inline: everything in this process.

No server and no workers: it starts at once, debuggers stop in client code, and one process uses the device.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from baselines.experiment import experiment
from baselines.grids.inline import InlineGrid
from strategies.shared.flower_private import server_context

from . import batching, sites


@dataclass(frozen=True)
class Inline:
    """Run everything in this process, one node after another or batched.

    Parameters
    ----------
    batch_clients : True trains the nodes of a round batched where that is possible, with the same
        results to rounding; False trains one after another, with Ray's results bit for bit; measured tries
        both at the start and takes the faster way; auto is False on the CPU. On an accelerator it is measured,
        and with ``deterministic=true`` True for models below a million parameters
    sites : {name: path} of data of the nodes' own, for dataset=local; None where nodes hold partitions
    """

    batch_clients: bool | str = "auto"
    sites: Mapping[str, str] | None = None
    gives_node_states: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Refuse any other choice."""
        batching.check(self.batch_clients)

    def run(self, overrides: str, num_nodes: int, folder: Path) -> None:
        """Run one experiment and write its results into ``folder``."""
        from baselines.apps import client_app_of, get_batched_trainer, server_app

        paths: dict[str, str] = {}
        if self.sites:
            own_data = experiment.load(overrides).dataset.site is not None
            paths = sites.check_sites(self.sites, num_nodes, own_data)
        choice = batching.choose_batching(self.batch_clients, overrides, folder, paths).say()
        trainer = get_batched_trainer(overrides) if choice.batched else None
        grid = InlineGrid(client_app_of(overrides), num_nodes, trainer, paths)
        grid.way = choice.describe()
        server_app(grid, server_context({"overrides": overrides, "output": str(folder)}))
