"""ray: Flower's simulation engine. Nodes share the processors and GPUs of one machine or a Ray cluster."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flwr.app import Context, RecordDict
from flwr.clientapp import ClientApp
from flwr.common import EventType
from flwr.common.constant import SUPERLINK_NODE_ID
from flwr.serverapp import ServerApp

from strategies.checks import require


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

    def __post_init__(self) -> None:
        """Refuse resources out of range."""
        require(self.client_cpus > 0, "runtime.client_cpus", self.client_cpus, "above 0")
        require(self.client_gpus >= 0, "runtime.client_gpus", self.client_gpus, "0 or above")

    def run(self, overrides: str, num_nodes: int, folder: Path) -> None:
        """Run one experiment and write its results into ``folder``."""
        from baselines.apps import client_app_of, server_app

        logging.getLogger("flwr").setLevel(logging.WARNING)
        init: dict[str, Any] = {"address": self.address} if self.address else {}
        if self.cpus:
            init["num_cpus"] = self.cpus
        resources = {"num_cpus": self.client_cpus, "num_gpus": self.client_gpus}
        _simulate(
            server_app,
            client_app_of(overrides),
            num_nodes,
            {"init_args": init, "client_resources": resources},
            {"overrides": overrides, "output": str(folder)},
        )


def _simulate(
    server_app: ServerApp,
    client_app: ClientApp,
    num_nodes: int,
    backend: dict[str, Any],
    run_config: dict[str, str],
) -> None:
    """Start the simulation engine from Python with a run configuration.

    Flower's public ``run_simulation`` is deprecated and gives the ServerApp an empty run
    configuration; its successor, ``flwr run``, needs an app bundle. Not public, hence alone here.
    """
    from flwr.simulation.run_simulation import _run_simulation

    _run_simulation(
        num_supernodes=num_nodes,
        exit_event=EventType.PYTHON_API_RUN_SIMULATION_LEAVE,
        server_app=server_app,
        client_app=client_app,
        backend_config=backend,
        server_app_context=Context(1, SUPERLINK_NODE_ID, {}, RecordDict(), dict(run_config)),
    )
