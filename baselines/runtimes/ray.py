"""ray: Flower's simulation engine. Nodes share the processors and GPUs of one machine or a Ray cluster."""

import logging
import os
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from threading import Event
from typing import Any

from flwr.app import ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common import EventType
from flwr.common.constant import SUPERLINK_NODE_ID
from flwr.serverapp import Grid, ServerApp

from strategies.checks import require

from .prompt import PromptGrid


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
                _simulate,
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


class RayGrid(PromptGrid):
    """The simulation's grid, on which a round's model goes to each worker once, not with every message.

    Parameters
    ----------
    grid : the simulation's
    interrupted : once it is set, nobody waits for replies any more: the ServerApp ends
    """

    def __init__(self, grid: Grid, interrupted: Event) -> None:
        super().__init__(grid)
        self._interrupted = interrupted

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies that are there."""
        if self._interrupted.is_set():
            raise SystemExit("interrupted")
        return super().pull_messages(message_ids)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send the messages; return their ids."""
        messages = list(messages)
        stored: dict[int, Stored] = {}
        for content in (message.content for message in messages):
            for name, record in list(content.array_records.items()):
                if not isinstance(record, Stored):  # messages of a round have their content in common
                    content[name] = stored.setdefault(id(record), Stored(record))
        return super().push_messages(messages)


class Stored(ArrayRecord):
    """A record that is pickled as a reference to Ray's object store, and put there once.

    Parameters
    ----------
    record : what it holds
    """

    def __init__(self, record: ArrayRecord) -> None:
        super().__init__(dict(record))
        self._reference: Any = None

    def __reduce__(self) -> tuple[Callable[..., ArrayRecord], tuple[Any]]:
        """Return how a worker gets the record."""
        import ray

        if self._reference is None:
            self._reference = ray.put(ArrayRecord(dict(self)))
        return _fetched, (self._reference,)


def _fetched(reference: Any) -> ArrayRecord:
    return ArrayRecord(dict(_received(reference)))


@lru_cache(maxsize=2)  # a round's model, and SCAFFOLD's control variate
def _received(reference: Any) -> ArrayRecord:
    import ray

    record: ArrayRecord = ray.get(reference)
    return record


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
