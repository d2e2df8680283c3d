"""ray: nodes share the processors and GPUs of one machine or of a Ray cluster."""

import logging
import os
import sys
import warnings
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from logging import getLogger
from pathlib import Path
from threading import Event, Thread
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar

from baselines.errors import UserError

from . import batching

if TYPE_CHECKING:
    from baselines.experiment.experiment import Experiment

logger = getLogger("flwr.grids")


# WorkerSlot: a Ray process started before its experiment is known.


class WorkerSlot:
    """Imports what a worker needs; becomes one when it gets its experiment."""

    def __init__(self) -> None:
        self._kind = import_module("baselines.runtimes.ray_worker").Worker
        self._arguments: tuple[Any, ...] = ()
        self._worker: Any = None

    def __repr__(self) -> str:
        """Return the name that Ray puts before its output."""
        return "Worker"

    def take(self, *arguments: Any) -> None:
        """Keep the arguments of :class:`~baselines.runtimes.ray_worker.Worker`."""
        self._arguments = arguments

    def do(self, method: str, *arguments: Any) -> Any:
        """Call a method of the worker by name; the first call creates the worker."""
        if self._worker is None:
            self._worker = self._kind(*self._arguments)
        return getattr(self._worker, method)(*arguments)


# RayPrestart: Ray starts on this machine while the command still imports and checks the experiment.
#
# So do its workers: each imports torch before its experiment is known.


ENVIRONMENT = {  # read by Ray when it is imported
    "RAY_gcs_server_request_timeout_seconds": "10",  # seconds until it gives up on a silent cluster
    "RAY_DISABLE_FAILURE_SIGNAL_HANDLER": "1",  # its handler aborts at SIGTERM
}


class RayPrestart(AbstractContextManager["RayPrestart"]):
    """Ray on this machine, with workers that have no experiment yet; it ends with the context.

    A thread starts it and lives as long, as Linux ends Ray's processes with the thread that started them.

    Parameters
    ----------
    cpus : processors that Ray may use; None for all
    client_cpus, client_gpus : what each worker reserves
    nodes : how many train in a round, an upper bound of the workers
    """

    def __init__(self, cpus: int | None, client_cpus: float, client_gpus: float, nodes: int) -> None:
        self.cpus, self.nodes = cpus, nodes
        self.needs = {"num_cpus": client_cpus, "num_gpus": client_gpus}
        self.seats: list[Any] = []
        self._up, self._over = Event(), Event()
        self._error: BaseException | None = None
        self._thread = Thread(target=self._live, name="ray", daemon=True)
        self._thread.start()

    def ready(self) -> None:
        """Wait until it has started; raise its error if it has failed."""
        self._up.wait()
        if self._error is not None:
            raise self._error

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it."""
        global _begun
        _begun = None
        self._over.set()
        self._thread.join()

    def _live(self) -> None:
        try:
            self._start()
        except BaseException as error:
            self._error = error
        self._up.set()
        self._over.wait()
        if "ray" in sys.modules:
            sys.modules["ray"].shutdown()

    def _start(self) -> None:
        ray = import_ray()
        ray.init("local", num_cpus=self.cpus, include_dashboard=False, logging_level=logging.ERROR)
        resources = ray.cluster_resources()
        shares = [resources.get(kind, 0) / need for kind, need in self._needed() if need]
        for _ in range(min(self.nodes, *(int(share + 1e-9) for share in shares))):
            self.seats.append(worker_class().options(**self.needs).remote())

    def _needed(self) -> list[tuple[str, float]]:
        return [("CPU", self.needs["num_cpus"]), ("GPU", self.needs["num_gpus"])]


_begun: RayPrestart | None = None


def begin_ray(cpus: int | None, client_cpus: float, client_gpus: float, nodes: int) -> RayPrestart:
    """Return the Ray that is already starting, or start one."""
    global _begun
    _begun = _begun or RayPrestart(cpus, client_cpus, client_gpus, nodes)
    return _begun


def worker_class() -> Any:
    """Return the actor class of the worker slots."""
    return import_ray().remote(max_restarts=0, max_task_retries=0)(WorkerSlot)


def import_ray() -> Any:
    """Import Ray with the environment that it reads at import."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    import ray

    logging.getLogger("ray._private.worker").setLevel(logging.ERROR)  # it warns of our signal handlers
    warnings.filterwarnings("ignore", "Tip: In future versions of Ray", FutureWarning)
    return ray


CODE = ("staged", "installed")


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
        inline's results bit for bit; auto is False on the CPU, and True on an accelerator for models that
        leave it idle, below a million parameters
    modules : more folders of Python files that a cluster's machines are to have
    partial_sums : True lets each worker add up its nodes' models, so that a round brings the server one
        model per worker; for plain weighted means, with inline's results to rounding
    """

    client_cpus: float = 1.0
    client_gpus: float = 0.0
    cpus: int | None = None
    address: str | None = None
    retries: int = 2
    code: str = "staged"
    batch_clients: bool | str = "auto"
    modules: list[str] = field(default_factory=list)
    partial_sums: bool = False
    gives_node_states: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Refuse resources out of range."""
        from strategies.shared.checks import require  # imports torch, which takes seconds

        require(self.client_cpus > 0, "runtime.client_cpus", self.client_cpus, "above 0")
        require(self.client_gpus >= 0, "runtime.client_gpus", self.client_gpus, "0 or above")
        require(self.cpus is None or self.cpus > 0, "runtime.cpus", self.cpus, "above 0, or null for all")
        require(self.retries >= 0, "runtime.retries", self.retries, "0 or above")
        batching.check_elsewhere(self.batch_clients)
        require(self.code in CODE, "runtime.code", self.code, " or ".join(CODE))
        if self.address and self.cpus:
            raise ValueError(
                f"runtime.cpus={self.cpus} with runtime.address={self.address}: an existing cluster "
                "keeps the processors that it was started with; leave runtime.cpus out"
            )

    @classmethod
    def begin(cls, nodes: int, settings: Mapping[str, Any]) -> AbstractContextManager[object]:
        """Start Ray in the background on this machine, with workers for ``nodes`` nodes, within the
        context.

        :meth:`run` uses it once the caller has imported and checked the experiment. ``settings`` are still
        unchecked: with wrong ones, nothing is started.
        """
        values: list[Any] = [settings.get(name) for name in ("cpus", "client_cpus", "client_gpus")]
        cpus, client_cpus, client_gpus = values
        sound = (
            (cpus is None or (type(cpus) is int and cpus > 0))
            and {type(client_cpus), type(client_gpus)} <= {int, float}
            and client_cpus > 0 <= client_gpus
        )
        if settings.get("address") or not sound:
            return nullcontext()
        return begin_ray(cpus, client_cpus, client_gpus, nodes)

    def run(self, overrides: str, num_nodes: int, folder: Path) -> None:
        """Run one experiment and write its results into ``folder``."""
        from baselines.experiment.experiment import load as load_experiment

        if self.partial_sums:
            _check_folding(load_experiment(overrides))
        if self.address is None:
            nodes = load_experiment(overrides).settings.nodes_in_round
            with begin_ray(self.cpus, self.client_cpus, self.client_gpus, nodes) as here:
                here.ready()
                self._run(overrides, num_nodes, folder, here.seats)
            return
        import_ray()
        from .ray_cluster import join_cluster

        with join_cluster(self.address, self.code, self.modules):
            self._run(overrides, num_nodes, folder, [])

    def _tell_idle(self, gpus: float, device: str) -> None:
        """Log that GPUs are idle, unless the command has already done so for this machine."""
        from baselines.experiment.device import accelerator

        by_itself = device == "auto"
        if gpus and not self.client_gpus and (by_itself or accelerator() is None):
            more = "" if by_itself else "device=auto and "
            logger.warning("%g GPUs are idle: set %sruntime.client_gpus=1, one for each worker", gpus, more)

    def _run(self, overrides: str, num_nodes: int, folder: Path, seats: list[Any]) -> None:
        import ray

        from baselines.apps import client_app_of, server_app
        from baselines.experiment import config
        from baselines.experiment.experiment import load as load_experiment
        from baselines.grids.ray import RayGrid
        from baselines.grids.ray_pool import Workers
        from strategies.shared.flower_private import server_context

        from .ray_worker import versions

        experiment = load_experiment(overrides)
        settings = experiment.settings
        self._tell_idle(ray.cluster_resources().get("GPU", 0), settings.device)  # type: ignore[no-untyped-call]
        choice = batching.choose_unmeasured(self.batch_clients, experiment).say()
        dealt = ray.put(experiment.node_data.partition_arrays())
        arguments = (overrides, config.export_composed(overrides), versions(), choice.batched, dealt)
        workers = Workers(partial(_start, seats, arguments), self.client_cpus, self.client_gpus)
        workers.grow(settings.nodes_in_round)  # they start in the background
        app, folded = client_app_of(overrides), self.partial_sums
        grid = RayGrid(app, num_nodes, workers, self.retries, batched=choice.batched, folded=folded)
        grid.way = choice.describe()
        server_app(grid, server_context({"overrides": overrides, "output": str(folder)}))


def _check_folding(experiment: "Experiment") -> None:
    """Refuse partial sums if the server needs more than the weighted mean of the nodes' updates."""
    from strategies.core.replies import make_partial_sums

    try:
        make_partial_sums(experiment.prototype, experiment.initial_arrays())
    except ValueError as error:
        raise UserError(
            f"runtime.partial_sums=true: {error} needs each node's update, and not only their weighted "
            "mean; set runtime.partial_sums=false"
        ) from error


def _start(seats: list[Any], arguments: tuple[Any, ...], **options: Any) -> Any:
    """Return an actor with its arguments: one that is already starting, or a new one."""
    actor = seats.pop() if seats else worker_class().options(**options).remote()
    actor.take.remote(*arguments)
    return actor
