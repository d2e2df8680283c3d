"""Send tasks to free Ray workers, and replace workers that die."""

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


# Workers: the Ray actors that do tasks, as many as there is work and room for.


MAX_FAILED_STARTS = 3  # in a row, with no worker at work
MACHINE_QUERY_SECONDS = 1.0  # seconds between two queries of the cluster's machines
USAGE_SECONDS = 5.0  # seconds for workers to report their usage
WARNING_SECONDS = 60.0  # seconds without any worker before a warning


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
    seconds: float = math.inf  # duration of its last task (tasks done aside do not count)

    def free(self, short: float) -> bool:
        """Say whether it is idle, or has one task while its last one took less than ``short`` s."""
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
        self.starting: dict[Any, PoolWorker] = {}  # by the reference to the result of its first check
        self._unfit: set[str] = set()  # machines that cannot take part
        self._failed_starts = 0
        self._worked = False
        self._began, self._has_logged = time.monotonic(), False
        self._look_again = 0.0

    def __len__(self) -> int:
        """Return how many workers there are, including those still starting."""
        return len(self.ready) + len(self.starting)

    def grow(self, num_workers: int) -> None:
        """Start workers until there are ``num_workers``, or no machine has room for another.

        Querying the machines takes milliseconds, so with workers ready it is done once a second at most.
        """
        if self.ready and time.monotonic() < self._look_again:
            return
        self._look_again = time.monotonic() + MACHINE_QUERY_SECONDS
        room = self._room()
        if not room:
            raise UserError(self._no_room())
        for worker in [*self.ready, *self.starting.values()]:
            if worker.machine in room:
                room[worker.machine] -= 1
        for _ in range(num_workers - len(self)):
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
        """Accept a started worker if its machine is fit.

        Raises
        ------
        UserError : if, at the run's start, a machine is not fit
        RunFailed : if no worker starts
        """
        worker = self.starting.pop(reference)
        try:
            lacking = ray.get(reference)
        except RayError as error:
            self._failed_starts += 1
            if self._failed_starts >= MAX_FAILED_STARTS and not self.ready:
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
        """Return a worker that can take a task, preferably an idle one; None if there is none."""
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
        """Kill a worker, even a busy one."""
        self.drop(worker)
        ray.kill(worker.actor)

    def used(self) -> list[dict[str, Any]]:
        """Return what workers report of their usage, leaving out those that do not answer in time."""
        futures = [worker.actor.do.remote("used") for worker in self.ready]
        come, _ = (
            ray.wait(futures, num_returns=len(futures), timeout=USAGE_SECONDS) if futures else ([], [])
        )
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
        """Warn once if no worker could start for a while, as others use the cluster."""
        if (
            self.ready
            or not self.starting
            or self._has_logged
            or time.monotonic() - self._began < WARNING_SECONDS
        ):
            return
        self._has_logged = True
        needs = " and ".join(f"{need:g} {kind}" for kind, need in self.needs.items() if need)
        logger.warning("no worker can start yet: each needs %s, which others are using", needs)

    def name(self, machine: str) -> str:
        """Return a machine's host name."""
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
    """Return the cluster's machines that are alive, as Ray describes them."""
    return [node for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]


def _last_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


# WorkerTask: something for a Ray worker to do, and its outcome.


class WorkerTask(ABC):
    """Something for a worker to do; the outcome is the same on any worker."""

    def __init__(self) -> None:
        self.deaths = 0  # of workers that were doing it
        self.alone = False  # whether its worker gets no other task: it may have killed one
        self.seconds = math.inf  # how long it took
        self.patience = math.inf  # seconds after which it is split into parts

    @abstractmethod
    def send(self, actor: Any) -> Any:
        """Call a method on a worker by ``do``; return the reference to the outcome."""

    @abstractmethod
    def take(self, outcome: Any) -> None:
        """Keep the outcome."""

    @abstractmethod
    def raised(self, error: Exception) -> None:
        """Handle an error that the worker raised."""

    @abstractmethod
    def lost(self, reason: str) -> None:
        """Handle the loss: every worker that tried has died."""

    def parts(self) -> "Sequence[WorkerTask]":
        """Return the tasks to do instead after the whole has failed."""
        return [self]


@dataclass(eq=False)
class TaskGroup:
    """Tasks that are awaited together.

    Parameters
    ----------
    left : how many are not finished
    aside : whether they have low priority: done only by workers that would be idle
    """

    left: int
    aside: bool = False


@dataclass(eq=False)
class SentTask:
    """A task sent to a worker.

    Parameters
    ----------
    since : when the worker could begin with it
    """

    task: WorkerTask
    group: TaskGroup
    worker: PoolWorker
    since: float


CHECK_SECONDS = 2.0  # seconds without any outcome before workers are checked
SHORT_TASK_SECONDS = 0.1  # seconds; a task below is short


class Dispatch:
    """The waiting and the sent tasks of one run.

    Parameters
    ----------
    workers : those that do the tasks
    retries : how often a task whose worker died is done again before it counts as lost
    """

    def __init__(self, workers: Workers, retries: int) -> None:
        self.workers, self.retries = workers, retries
        self._waiting: deque[tuple[WorkerTask, TaskGroup]] = deque()
        self._aside: deque[tuple[WorkerTask, TaskGroup]] = deque()
        self._sent: dict[Any, SentTask] = {}

    def add(self, tasks: Iterable[WorkerTask], *, aside: bool = False) -> TaskGroup:
        """Queue tasks; return their group, for :meth:`finish`."""
        tasks = list(tasks)
        group = TaskGroup(len(tasks), aside)
        self._queue(group).extend((task, group) for task in tasks)
        self._deal()
        return group

    def finish(self, group: TaskGroup, timeout: float | None = None) -> None:
        """Do tasks until those of ``group`` are finished, for ``timeout`` s at most.

        The time begins when there is a worker. A worker still busy with the group afterwards is replaced,
        as it may hang.
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

    def _queue(self, group: TaskGroup) -> deque[tuple[WorkerTask, TaskGroup]]:
        return self._aside if group.aside else self._waiting

    def _deal(self) -> None:
        """Send waiting tasks to free workers."""
        self._deal_from(self._waiting, 0.0)
        # A second task saves a worker the round trip. Towards the end, only short tasks are sent ahead:
        # a long one might wait behind a slow worker.
        plenty = len(self._waiting) >= len(self.workers.ready)
        self._deal_from(self._waiting, CHECK_SECONDS if plenty else SHORT_TASK_SECONDS)
        self._deal_from(self._aside, 0.0)

    def _deal_from(self, queue: deque[tuple[WorkerTask, TaskGroup]], short: float) -> None:
        while queue and (worker := self.workers.free(short)):
            if queue[0][0].alone and worker.sent:
                return
            task, group = queue.popleft()
            reference = task.send(worker.actor)
            self._sent[reference] = SentTask(task, group, worker, time.monotonic())
            worker.sent.append(reference)
            if task.alone:
                worker.seconds = math.inf  # so that no second task is sent

    def _collect(self, deadline: float) -> None:
        """Wait for outcomes, and take all that have arrived."""
        awaited = [*self._sent, *self.workers.starting]
        patience = max(0.0, min(CHECK_SECONDS, deadline - time.monotonic()))
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
        """Take back the second tasks of busy workers, for idle ones."""
        if self._waiting or not any(not worker.sent for worker in self.workers.ready):
            return
        for worker in self.workers.ready:
            if len(worker.sent) > 1:
                worker.seconds = CHECK_SECONDS
            self._take_back(worker.sent[1:])

    def _part(self) -> None:
        """Split tasks that exceed their ``patience``; end their workers, which may hang."""
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
            if isinstance(why, RayError):  # not raised by the task: the worker or its machine is lost
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
        """Requeue the tasks of a worker that died; count the death for the only task it had.

        Of two tasks, nobody knows which one it was doing, as a reply may be lost with its worker. Each task
        is done next by a worker that has no other.
        """
        self.workers.end(worker)  # Ray may not know yet that its machine is lost
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
        """Requeue the tasks of a worker that is gone, in front and split into parts."""
        for reference in reversed(worker.sent):
            sent = self._sent.pop(reference)
            parts = sent.task.parts()
            sent.group.left += len(parts) - 1
            self._queue(sent.group).extendleft((part, sent.group) for part in reversed(parts))

    def _abandon(self, group: TaskGroup) -> None:
        """Drop a group's tasks, and end the workers that are busy with them."""
        queue = self._queue(group)
        remaining = [one for one in queue if one[1] is not group]
        queue.clear()
        queue.extend(remaining)
        mine = [reference for reference, sent in self._sent.items() if sent.group is group]
        busy = {id(worker): worker for worker in (self._sent.pop(reference).worker for reference in mine)}
        for worker in busy.values():
            self.workers.end(worker)
            worker.sent[:] = [reference for reference in worker.sent if reference in self._sent]
            self._take_back(list(worker.sent))
        group.left = 0
