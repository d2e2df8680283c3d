"""Workers: the Ray actors that do tasks, as many as machines have room for and work is there."""

import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from logging import getLogger
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from baselines.errors import RunFailed, UserError

logger = getLogger("flwr.grids")
MOST_FAILED_STARTS = 3  # in a row, with no worker at work
LOOK = 1.0  # seconds between two looks at which machines there are
ANSWERS = 5.0  # seconds for workers to say what they have used
PATIENCE = 60.0  # seconds without any worker, before the user is told


@dataclass(eq=False)
class Worker:
    """One actor.

    Parameters
    ----------
    actor : its handle
    machine : Ray's id of the machine that it runs on
    """

    actor: Any
    machine: str
    sent: list[Any] = field(default_factory=list)  # references to its outcomes, the oldest first
    seconds: float = math.inf  # that its last task took, of those that are not done aside

    def free(self, short: float) -> bool:
        """Say whether it has nothing to do, or one task only and takes less than ``short`` s for one."""
        return len(self.sent) < (2 if self.seconds < short else 1)


class Workers:
    """The workers of one run.

    Parameters
    ----------
    start : starts an actor, given its options
    cpus, gpus : what each reserves
    """

    def __init__(self, start: Callable[..., Any], cpus: float, gpus: float) -> None:
        self._start = start
        self.needs = {"CPU": cpus, "GPU": gpus}
        self.ready: list[Worker] = []
        self.starting: dict[Any, Worker] = {}  # by the reference to what it lacks
        self._unfit: set[str] = set()  # machines that cannot take part
        self._failed_starts = 0
        self._worked = False
        self._began, self._told = time.monotonic(), False
        self._look_again = 0.0

    def __len__(self) -> int:
        """Return how many there are, those included that still start."""
        return len(self.ready) + len(self.starting)

    def grow(self, wanted: int) -> None:
        """Start workers until there are ``wanted``, or no machine has room for another.

        To look which machines there are takes milliseconds: with workers at hand that is not done again
        at once.
        """
        if self.ready and time.monotonic() < self._look_again:
            return
        self._look_again = time.monotonic() + LOOK
        room = self._room()
        if not room:
            raise UserError(self._no_room())
        for worker in [*self.ready, *self.starting.values()]:
            if worker.machine in room:
                room[worker.machine] -= 1
        for _ in range(wanted - len(self)):
            machine = max(room, key=room.__getitem__)
            if room[machine] <= 0:
                return
            room[machine] -= 1
            affinity = NodeAffinitySchedulingStrategy(machine, soft=False)
            actor = self._start(
                num_cpus=self.needs["CPU"], num_gpus=self.needs["GPU"], scheduling_strategy=affinity
            )
            self.starting[actor.do.remote("unfit")] = Worker(actor, machine)

    def admit(self, reference: Any) -> None:
        """Take a worker whose machine is fit.

        Raises
        ------
        UserError : at the run's start, for a machine that is not
        RunFailed : when none starts
        """
        worker = self.starting.pop(reference)
        try:
            lacking = ray.get(reference)
        except RayError as error:
            self._failed_starts += 1
            if self._failed_starts >= MOST_FAILED_STARTS and not self.ready:
                raise RunFailed(f"no worker starts on Ray: {_last_line(error)}") from error
            return
        if lacking is None:
            self._failed_starts = 0
            self.ready.append(worker)
            return
        self.end(worker)
        said = f"machine {self.name(worker.machine)}: {lacking}"
        if not self._worked:
            raise UserError(said)
        if worker.machine not in self._unfit:
            logger.warning("%s; it takes no part", said)
        self._unfit.add(worker.machine)

    def free(self, short: float) -> Worker | None:
        """Return a worker that should be sent a task; those without any come first."""
        able = (one for one in self.ready if one.free(short))
        found = min(able, key=lambda one: len(one.sent), default=None)
        self._worked = self._worked or found is not None
        return found

    def drop(self, worker: Worker) -> None:
        """Forget a worker that has died."""
        self._look_again = 0.0
        if worker in self.ready:
            self.ready.remove(worker)

    def end(self, worker: Worker) -> None:
        """End a worker, whatever it does."""
        self.drop(worker)
        ray.kill(worker.actor)

    def used(self) -> list[dict[str, Any]]:
        """Return what workers say of what they have used; without those that do not answer in time."""
        asked = [worker.actor.do.remote("used") for worker in self.ready]
        come, _ = ray.wait(asked, num_returns=len(asked), timeout=ANSWERS) if asked else ([], [])
        told = []
        for reference in come:
            with suppress(RayError):  # it has died since
                told.append(ray.get(reference))
        return told

    def close(self) -> None:
        """End all workers."""
        for worker in [*self.ready, *self.starting.values()]:
            self.end(worker)
        self.starting.clear()

    def waiting(self) -> None:
        """Say so, once, when none could start for a while: on a cluster, others use what they need."""
        if self.ready or not self.starting or self._told or time.monotonic() - self._began < PATIENCE:
            return
        self._told = True
        needs = " and ".join(f"{need:g} {kind}" for kind, need in self.needs.items() if need)
        logger.warning("no worker could start yet: each needs %s, and others use what there is", needs)

    def name(self, machine: str) -> str:
        """Return what a machine is called."""
        names = {node["NodeID"]: node["NodeManagerHostname"] for node in _machines()}
        return str(names.get(machine, machine))

    def _room(self) -> dict[str, int]:
        """Return how many workers each fit machine has room for."""
        needs = {kind: need for kind, need in self.needs.items() if need}
        room = {}
        for node in _machines():
            has = node["Resources"]
            shares = min(int(has.get(kind, 0) / need + 1e-9) for kind, need in needs.items())
            if shares and node["NodeID"] not in self._unfit:
                room[node["NodeID"]] = shares
        return room

    def _no_room(self) -> str:
        most = {kind: max(node["Resources"].get(kind, 0) for node in _machines()) for kind in self.needs}
        return (
            f"runtime.client_cpus={self.needs['CPU']:g} with runtime.client_gpus={self.needs['GPU']:g} is "
            f"more than any machine has ({most['CPU']:g} CPUs and {most['GPU']:g} GPUs at most): lower them"
        )


def _machines() -> list[dict[str, Any]]:
    """Return the machines of the cluster that live, as Ray describes them."""
    return [node for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]


def _last_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
