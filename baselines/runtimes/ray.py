"""ray: Flower's simulation engine. Nodes share the processors and GPUs of one machine or a Ray cluster."""

import logging
import os
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any, ClassVar

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from baselines.grids.ray import RayGrid
from strategies.shared.checks import require
from strategies.shared.flower_private import simulate


@dataclass(frozen=True)
class Ray:
    """Run the nodes in Ray workers.

    Parameters
    ----------
    client_cpus, client_gpus : what each worker reserves (fractions allowed), and so how many run
    cpus : processors that Ray may use on this machine; None for all
    address : of an existing Ray cluster to join, e.g. ``auto``; None starts one on this machine
    """

    client_cpus: float = 1.0
    client_gpus: float = 0.0
    cpus: int | None = None
    address: str | None = None
    gives_node_states: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Refuse resources out of range."""
        require(self.client_cpus > 0, "runtime.client_cpus", self.client_cpus, "above 0")
        require(self.client_gpus >= 0, "runtime.client_gpus", self.client_gpus, "0 or above")

    def run(self, overrides: str, num_nodes: int, folder: Path) -> None:
        """Run one experiment and write its results into ``folder``."""
        from baselines.apps import client_app_of, server_app

        whole, interrupted = ServerApp(), Event()

        @whole.main()
        def main(grid: Grid, context: Context) -> None:
            server_app(RayGrid(grid, interrupted), context)

        logging.getLogger("flwr").setLevel(logging.WARNING)
        logging.getLogger("ray._private.worker").setLevel(logging.ERROR)  # it warns that signals are ours
        warnings.filterwarnings("ignore", "Tip: In future versions of Ray", FutureWarning)
        init: dict[str, Any] = {"address": self.address} if self.address else {}
        if self.cpus:
            init["num_cpus"] = self.cpus
        resources = {"num_cpus": self.client_cpus, "num_gpus": self.client_gpus}
        resources["max_restarts"] = -1  # Flower gives a dead worker messages on; it answers none of them
        os.environ.setdefault("RAY_DISABLE_FAILURE_SIGNAL_HANDLER", "1")  # which aborts at SIGTERM
        with ThreadPoolExecutor(1) as engine:  # signals reach this thread, and never the engine's locks
            simulation = engine.submit(
                simulate,
                whole,
                client_app_of(overrides),
                num_nodes,
                {"init_args": init, "client_resources": resources},
                {"overrides": overrides, "output": str(folder)},
            )
            try:
                simulation.result()
            except KeyboardInterrupt:
                interrupted.set()
                raise
