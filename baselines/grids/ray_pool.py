"""Deal tasks to free Ray workers, and replace workers that die."""

import math
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from logging import getLogger
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from baselines.errors import RunFailed, UserError

logger = getLogger("flwr.grids")


# Workers: the Ray actors that do tasks, as many as machines have room for and work is there.


MOST_FAILED_STARTS = 3  # in a row, with no worker at work
LOOK_FOR_NODES = 1.0  # seconds between two looks at which machines there are
ANSWERS = 5.0  # seconds for workers to say what they have used
PATIENCE = 60.0  # seconds without any worker, before the user is told


@dataclass(eq=False)
class PoolWorker:
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
        self.ready: list[PoolWorker] = []
        self.starting: dict[Any, PoolWorker] = {}  # by the reference to what it lacks
        self._unfit: set[str] = set()  # machines that cannot take part
        self._failed_starts = 0
        self._worked = False
        self._began, self._has_logged = time.monotonic(), False
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
        self._look_again = time.monotonic() + LOOK_FOR_NODES
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
            self.starting[actor.do.remote("unfit")] = PoolWorker(actor, machine)

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
        reason = f"machine {self.name(worker.machine)}: {lacking}"
        if not self._worked:
            raise UserError(reason)
        if worker.machine not in self._unfit:
            logger.warning("%s; it is not used", reason)
        self._unfit.add(worker.machine)

    def free(self, short: float) -> PoolWorker | None:
        """Return a worker that should be sent a task; those without any come first."""
        able = (one for one in self.ready if one.free(short))
        worker = min(able, key=lambda one: len(one.sent), default=None)
        self._worked = self._worked or worker is not None
        return worker

    def drop(self, worker: PoolWorker) -> None:
        """Forget a worker that has died."""
        self._look_again = 0.0
        if worker in self.ready:
            self.ready.remove(worker)

    def end(self, worker: PoolWorker) -> None:
        """End a worker, whatever it does."""
        self.drop(worker)
        ray.kill(worker.actor)

    def used(self) -> list[dict[str, Any]]:
        """Return what workers say of what they have used; without those that do not answer in time."""
        futures = [worker.actor.do.remote("used") for worker in self.ready]
        come, _ = ray.wait(futures, num_returns=len(futures), timeout=ANSWERS) if futures else ([], [])
        usages = []
        for reference in come:
            with suppress(RayError):  # it has died since
                usages.append(ray.get(reference))
        return usages

    def close(self) -> None:
        """End all workers."""
        for worker in [*self.ready, *self.starting.values()]:
            self.end(worker)
        self.starting.clear()

    def waiting(self) -> None:
        """Say so, once, when none could start for a while: on a cluster, others use what they need."""
        if self.ready or not self.starting or self._has_logged or time.monotonic() - self._began < PATIENCE:
            return
        self._has_logged = True
        needs = " and ".join(f"{need:g} {kind}" for kind, need in self.needs.items() if need)
        logger.warning("no worker can start yet: each needs %s, which others are using", needs)

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


# WorkerTask: something for a Ray worker to do, and what becomes of it.


class WorkerTask(ABC):
    """Something for a worker to do; whichever worker does it, the outcome is the same."""

    def __init__(self) -> None:
        self.deaths = 0  # of workers that were at it
        self.alone = False  # whether its worker is to have nothing else: one may have died of it
        self.seconds = math.inf  # that it took
        self.patience = math.inf  # seconds after which it is done in parts

    @abstractmethod
    def send(self, actor: Any) -> Any:
        """Have a worker ``do`` something, by its method's name; return the reference to the outcome."""

    @abstractmethod
    def take(self, outcome: Any) -> None:
        """Keep the outcome."""

    @abstractmethod
    def raised(self, error: Exception) -> None:
        """Go without an outcome: the worker raised."""

    @abstractmethod
    def lost(self, reason: str) -> None:
        """Go without an outcome: every worker that tried has died."""

    def parts(self) -> "Sequence[WorkerTask]":
        """Return what to do in its place where it went wrong as a whole."""
        return [self]


@dataclass(eq=False)
class Group:
    """Tasks that are awaited together.

    Parameters
    ----------
    left : how many are not finished
    aside : whether they are done only where a worker would have nothing else to do
    """

    left: int
    aside: bool = False


@dataclass(eq=False)
class Sent:
    """A task that is with a worker.

    Parameters
    ----------
    since : when the worker could begin with it
    """

    task: WorkerTask
    group: Group
    worker: PoolWorker
    since: float


LOOK = 2.0  # seconds without any outcome, before workers are looked at
SHORT = 0.1  # seconds that a short task takes


class Dispatch:
    """The tasks of one run that wait or are with workers.

    Parameters
    ----------
    workers : who do them
    retries : how often a task whose worker died is done again before it is given up
    """

    def __init__(self, workers: Workers, retries: int) -> None:
        self.workers, self.retries = workers, retries
        self._waiting: deque[tuple[WorkerTask, Group]] = deque()
        self._aside: deque[tuple[WorkerTask, Group]] = deque()
        self._sent: dict[Any, Sent] = {}

    def add(self, tasks: Iterable[WorkerTask], *, aside: bool = False) -> Group:
        """Take tasks on; return what to :meth:`finish`."""
        tasks = list(tasks)
        group = Group(len(tasks), aside)
        self._queue(group).extend((task, group) for task in tasks)
        self._deal()
        return group

    def finish(self, group: Group, timeout: float | None = None) -> None:
        """Do tasks until those of ``group`` are finished, for ``timeout`` s at most.

        The time begins when there is a worker. One that is still busy with the group at its end is
        replaced: it may never end.
        """
        self._grow()
        deadline = math.inf
        try:
            while group.left and time.monotonic() < deadline:
                if timeout is not None and deadline == math.inf and self.workers.ready:
                    deadline = time.monotonic() + timeout
                self._deal()
                self._collect(deadline)
        finally:  # too late, or interrupted
            if group.left:
                self._abandon(group)

    def _grow(self) -> None:
        self.workers.grow(len(self._waiting) + len(self._aside) + len(self._sent))

    def _queue(self, group: Group) -> deque[tuple[WorkerTask, Group]]:
        return self._aside if group.aside else self._waiting

    def _deal(self) -> None:
        """Send what waits to the workers that are free."""
        self._deal_from(self._waiting, 0.0)
        # A task at hand saves a worker the way there and back. Towards the end it would wait for a worker
        # that is slower than another, unless tasks are short.
        plenty = len(self._waiting) >= len(self.workers.ready)
        self._deal_from(self._waiting, LOOK if plenty else SHORT)
        self._deal_from(self._aside, 0.0)

    def _deal_from(self, queue: deque[tuple[WorkerTask, Group]], short: float) -> None:
        while queue and (worker := self.workers.free(short)):
            if queue[0][0].alone and worker.sent:
                return
            task, group = queue.popleft()
            reference = task.send(worker.actor)
            self._sent[reference] = Sent(task, group, worker, time.monotonic())
            worker.sent.append(reference)
            if task.alone:
                worker.seconds = math.inf  # so that nothing follows it

    def _collect(self, deadline: float) -> None:
        """Wait until something has come, and take all that has."""
        awaited = [*self._sent, *self.workers.starting]
        patience = max(0.0, min(LOOK, deadline - time.monotonic()))
        come, _ = ray.wait(awaited, timeout=patience) if awaited else ([], [])
        self._grow()
        if not come:
            self._relieve()
            self._part()
            self.workers.waiting()
        for reference in come:
            if reference in self.workers.starting:
                self.workers.admit(reference)
            else:
                self._take(reference)

    def _relieve(self) -> None:
        """Take back what waits at a busy worker, for those that have nothing to do."""
        if self._waiting or not any(not worker.sent for worker in self.workers.ready):
            return
        for worker in self.workers.ready:
            if len(worker.sent) > 1:
                worker.seconds = LOOK
            self._take_back(worker.sent[1:])

    def _part(self) -> None:
        """Have what was thought to be short, and is not, done in parts; the worker may never end."""
        for worker in list(self.workers.ready):
            first = self._sent[worker.sent[0]] if worker.sent else None
            if first and time.monotonic() - first.since > first.task.patience:
                self.workers.end(worker)
                self._hand_back(worker)

    def _take_back(self, references: list[Any]) -> None:
        for reference in references:
            sent = self._sent.pop(reference)
            sent.worker.sent.remove(reference)
            self._queue(sent.group).append((sent.task, sent.group))
            ray.cancel(reference)

    def _take(self, reference: Any) -> None:
        if (sent := self._sent.get(reference)) is None:
            return  # its worker has died
        worker = sent.worker
        try:
            sent.task.take(ray.get(reference))
        except RayError as error:
            why = error.cause if isinstance(error, RayTaskError) else error
            if isinstance(why, RayError):  # not of what the task does: its machine is going, or gone
                self._mourn(worker, type(why).__name__)
                return
            sent.task.raised(why)
        worker.sent.remove(reference)
        del self._sent[reference]
        sent.group.left -= 1
        sent.task.seconds = time.monotonic() - sent.since
        if not sent.group.aside:
            worker.seconds = sent.task.seconds
        if worker.sent:
            self._sent[worker.sent[0]].since = time.monotonic()  # it begins only now

    def _mourn(self, worker: PoolWorker, reason: str) -> None:
        """Have the tasks of a worker that died done by others; count the death with the one it was at.

        Which of two that was nobody knows, for an answer may be lost with its worker: each is then done
        by a worker that has nothing else.
        """
        self.workers.end(worker)  # one that has lost its machine may not know yet
        first = self._sent[worker.sent[0]]
        first.task.deaths += len(worker.sent) == 1
        for reference in worker.sent:
            self._sent[reference].task.alone = True
        if first.task.deaths > self.retries:
            del self._sent[worker.sent.pop(0)]
            first.group.left -= 1
            first.task.lost(f"its worker died {first.task.deaths} times ({reason})")
        self._hand_back(worker)
        logger.warning("a worker on %s died (%s)", self.workers.name(worker.machine), reason)
        self._grow()

    def _hand_back(self, worker: PoolWorker) -> None:
        """Have the tasks of a worker that is no more done by others, first of all, and in parts."""
        for reference in reversed(worker.sent):
            sent = self._sent.pop(reference)
            parts = sent.task.parts()
            sent.group.left += len(parts) - 1
            self._queue(sent.group).extendleft((part, sent.group) for part in reversed(parts))

    def _abandon(self, group: Group) -> None:
        """Forget a group's tasks, and end the workers that are busy with them."""
        queue = self._queue(group)
        kept = [one for one in queue if one[1] is not group]
        queue.clear()
        queue.extend(kept)
        mine = [reference for reference, sent in self._sent.items() if sent.group is group]
        busy = {id(worker): worker for worker in (self._sent.pop(reference).worker for reference in mine)}
        for worker in busy.values():
            self.workers.end(worker)
            worker.sent[:] = [reference for reference in worker.sent if reference in self._sent]
            self._take_back(list(worker.sent))
        group.left = 0
