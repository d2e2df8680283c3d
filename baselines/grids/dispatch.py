"""Dispatch: deals tasks to Ray workers, whichever are free, and outlives their deaths."""

import math
import time
from collections import deque
from collections.abc import Iterable
from logging import getLogger
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from .tasks import Group, Sent, Task
from .workers import Worker, Workers

logger = getLogger("flwr.grids")
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
        self._waiting: deque[tuple[Task, Group]] = deque()
        self._aside: deque[tuple[Task, Group]] = deque()
        self._sent: dict[Any, Sent] = {}

    def add(self, tasks: Iterable[Task], *, aside: bool = False) -> Group:
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

    def _queue(self, group: Group) -> deque[tuple[Task, Group]]:
        return self._aside if group.aside else self._waiting

    def _deal(self) -> None:
        """Send what waits to the workers that are free."""
        self._deal_from(self._waiting, 0.0)
        # A task at hand saves a worker the way there and back. Towards the end it would wait for a worker
        # that is slower than another, unless tasks are short.
        plenty = len(self._waiting) >= len(self.workers.ready)
        self._deal_from(self._waiting, LOOK if plenty else SHORT)
        self._deal_from(self._aside, 0.0)

    def _deal_from(self, queue: deque[tuple[Task, Group]], short: float) -> None:
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

    def _mourn(self, worker: Worker, reason: str) -> None:
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

    def _hand_back(self, worker: Worker) -> None:
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
