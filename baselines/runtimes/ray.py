"""ray: nodes share the processors and GPUs of one machine or of a Ray cluster."""

import os
from dataclasses import dataclass, field
from functools import partial
from logging import getLogger
from pathlib import Path
from typing import Any, ClassVar

from strategies.shared.checks import require
from strategies.shared.flower_private import server_context

from . import batching

logger = getLogger("flwr.grids")
CODE = ("staged", "installed")
ENVIRONMENT = {
    "RAY_gcs_server_request_timeout_seconds": "10",  # to give up on a cluster that does not answer
    "RAY_DISABLE_FAILURE_SIGNAL_HANDLER": "1",  # which aborts at SIGTERM
}


@dataclass(frozen=True)
class Ray:
    """Run the nodes in Ray workers.

    Parameters
    ----------
    client_cpus, client_gpus : what each worker reserves (fractions allowed), and so how many run
    cpus : processors that Ray may use on this machine; None for all
    address : of an existing Ray cluster to join, ``host:port`` or ``auto``; None starts one here
    retries : how often a message whose worker died is sent to another one
    code : ``staged`` takes this project's code to a cluster's machines; ``installed`` uses theirs
    batch_clients : True sends each worker its share of a round's nodes at once and trains them batched
        where that is possible, with the same results to rounding; False sends them one after another, with
        inline's results to the bit; auto is as with ``runtime=inline``
    modules : more folders of Python files that a cluster's machines are to have
    """

    client_cpus: float = 1.0
    client_gpus: float = 0.0
    cpus: int | None = None
    address: str | None = None
    retries: int = 2
    code: str = "staged"
    batch_clients: bool | str = "auto"
    modules: list[str] = field(default_factory=list)
    gives_node_states: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Refuse resources out of range."""
        require(self.client_cpus > 0, "runtime.client_cpus", self.client_cpus, "above 0")
        require(self.client_gpus >= 0, "runtime.client_gpus", self.client_gpus, "0 or above")
        require(self.cpus is None or self.cpus > 0, "runtime.cpus", self.cpus, "above 0, or null for all")
        require(self.retries >= 0, "runtime.retries", self.retries, "0 or above")
        batching.check(self.batch_clients)
        require(self.code in CODE, "runtime.code", self.code, " or ".join(CODE))
        if self.address and self.cpus:
            raise ValueError(
                f"runtime.cpus={self.cpus} with runtime.address={self.address}: a cluster that is joined "
                "has the processors that it was started with; leave runtime.cpus out"
            )

    def run(self, overrides: str, num_nodes: int, folder: Path) -> None:
        """Run one experiment and write its results into ``folder``."""
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        from .cluster import joined  # imports Ray, which only this runtime needs, and which reads them

        with joined(self.address, self.cpus, self.code, self.modules):
            self._run(overrides, num_nodes, folder)

    def _run(self, overrides: str, num_nodes: int, folder: Path) -> None:
        import ray

        from baselines.apps import client_app_of, server_app
        from baselines.experiment import config, experiment
        from baselines.grids.ray import RayGrid
        from baselines.grids.workers import Workers

        from .worker import Worker, versions

        this = experiment.load(overrides)
        settings = this.settings
        gpus = ray.cluster_resources().get("GPU", 0)  # type: ignore[no-untyped-call]
        if gpus and not self.client_gpus and settings.device == "auto":
            logger.warning("%g GPUs are idle: set runtime.client_gpus=1 to give each worker one", gpus)
        batched = batching.chosen(self.batch_clients, overrides)
        dealt = ray.put(this.holdings.dealt())
        arguments = (overrides, config.text(overrides), versions(), batched, dealt)
        actor: Any = ray.remote(max_restarts=0, max_task_retries=0)(Worker)
        workers = Workers(partial(_start, actor, arguments), self.client_cpus, self.client_gpus)
        workers.grow(settings.asked)  # they start while the server prepares
        grid = RayGrid(client_app_of(overrides), num_nodes, workers, self.retries, batched=batched)
        server_app(grid, server_context({"overrides": overrides, "output": str(folder)}))


def _start(actor: Any, arguments: tuple[Any, ...], **options: Any) -> Any:
    return actor.options(**options).remote(*arguments)
