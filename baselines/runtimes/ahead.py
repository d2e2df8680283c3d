"""Ahead: Ray starts on this machine while the command still imports and checks what is to run on it.

So do its workers: each imports torch before anybody knows what it is to train.
"""

import logging
import os
import sys
import warnings
from contextlib import AbstractContextManager
from threading import Event, Thread
from types import TracebackType
from typing import Any

from .seat import Seat

ENVIRONMENT = {  # which Ray reads when it is imported
    "RAY_gcs_server_request_timeout_seconds": "10",  # to give up on a cluster that does not answer
    "RAY_DISABLE_FAILURE_SIGNAL_HANDLER": "1",  # which aborts at SIGTERM
}


class Ahead(AbstractContextManager["Ahead"]):
    """A Ray on this machine, with workers that have not been told what for; it ends with the context.

    A thread starts it, and lives as long: Linux ends Ray's processes with the thread that started them.

    Parameters
    ----------
    cpus : processors that Ray may use; None for all
    client_cpus, client_gpus : what each worker reserves
    nodes : how many train in a round; there are never more workers
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
        """Wait until it has started; raise what it failed with."""
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
        ray = imported()
        ray.init("local", num_cpus=self.cpus, include_dashboard=False, logging_level=logging.ERROR)
        there = ray.cluster_resources()
        shares = [there.get(kind, 0) / need for kind, need in self._needed() if need]
        for _ in range(min(self.nodes, *(int(share + 1e-9) for share in shares))):
            self.seats.append(seat().options(**self.needs).remote())

    def _needed(self) -> list[tuple[str, float]]:
        return [("CPU", self.needs["num_cpus"]), ("GPU", self.needs["num_gpus"])]


_begun: Ahead | None = None


def begin(cpus: int | None, client_cpus: float, client_gpus: float, nodes: int) -> Ahead:
    """Return the Ray that has begun to start; let one start where none has."""
    global _begun
    _begun = _begun or Ahead(cpus, client_cpus, client_gpus, nodes)
    return _begun


def seat() -> Any:
    """Return the actor class of what becomes a worker."""
    return imported().remote(max_restarts=0, max_task_retries=0)(Seat)


def imported() -> Any:
    """Return Ray, told what it reads when it is imported."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    import ray

    logging.getLogger("ray._private.worker").setLevel(logging.ERROR)  # it warns that signals are ours
    warnings.filterwarnings("ignore", "Tip: In future versions of Ray", FutureWarning)
    return ray
