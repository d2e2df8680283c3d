"""The grid of the Ray runtime: messages go to whichever worker is free, wherever it runs."""

import math
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from logging import getLogger
from typing import Any

import ray
from flwr.app import Message, MessageType
from flwr.clientapp import ClientApp
from ray.exceptions import RayError, RayTaskError

from strategies.shared.flower_private import failed, stamp

from .population import Population, answer, delivered
from .stored import travelling
from .workers import Worker, Workers

logger = getLogger("flwr.grids")
LOOK = 2.0  # seconds between two looks at which machines there are


class RayGrid(Population):
    """A grid of ``num_nodes`` nodes whose messages are answered by Ray workers.

    A node's context goes with its message and comes back with the reply. A message whose worker died
    goes to another one, with the same context, and so gives the same answer to the bit.

    Parameters
    ----------
    app : answers, in this process, what the nodes' configuration alone decides: which partition they hold
    num_nodes : the population
    workers : who answer the rest
    retries : how often a message whose worker died is sent again before its node is given up for the round
    """

    def __init__(self, app: ClientApp, num_nodes: int, workers: Workers, retries: int = 2) -> None:
        super().__init__(num_nodes)
        self.app, self.workers, self.retries = app, workers, retries
        self.lost = 0

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        """Return the replies that came within ``timeout`` s, in no particular order.

        The time begins when there is a worker. One that is still busy at its end is replaced: it may never
        end.
        """
        messages = list(messages)
        if messages and messages[0].metadata.message_type == MessageType.QUERY:
            return [self._answer_here(message) for message in messages]
        work = Work(deque(map(Task, travelling(messages))), {}, [])
        self.workers.grow(len(messages))
        deadline = math.inf
        try:
            while (work.waiting or work.sent) and time.monotonic() < deadline:
                if timeout is not None and deadline == math.inf and self.workers.ready:
                    deadline = time.monotonic() + timeout
                self._deal(work)
                self._collect(work, deadline)
        finally:  # too late, or interrupted
            for worker in {id(task.worker): task.worker for task in work.sent.values()}.values():
                assert worker is not None
                self.workers.end(worker)
        return work.replies

    def _answer_here(self, message: Message) -> Message:
        context = self.context(message.metadata.dst_node_id)
        return delivered(answer(self.app, delivered(message), context))

    def _deal(self, work: "Work") -> None:
        """Send what waits to the workers that are free."""
        while work.waiting and (worker := self.workers.free()):
            task = work.waiting.popleft()
            context = self.context(task.message.metadata.dst_node_id)
            reference = worker.actor.answer.remote(task.message, context)
            task.worker, task.since = worker, time.monotonic()
            worker.sent.append(reference)
            work.sent[reference] = task

    def _collect(self, work: "Work", deadline: float) -> None:
        """Wait until something has come, and take all that has."""
        awaited = [*work.sent, *self.workers.starting]
        patience = max(0.0, min(LOOK, deadline - time.monotonic()))
        come, _ = ray.wait(awaited, timeout=patience) if awaited else ([], [])
        if not come:
            self.workers.grow(len(work.waiting) + len(work.sent))
            self._relieve(work)
            self.workers.waiting()
        for reference in come:
            if reference in self.workers.starting:
                self.workers.admit(reference)
            else:
                self._take(reference, work)

    def _relieve(self, work: "Work") -> None:
        """Take back what waits at a busy worker, for those that have nothing to do."""
        if work.waiting or not any(not worker.sent for worker in self.workers.ready):
            return
        for worker in self.workers.ready:
            for reference in worker.sent[1:]:
                work.waiting.append(work.sent.pop(reference))
                ray.cancel(reference)
            del worker.sent[1:]
            if worker.sent:
                worker.seconds = LOOK

    def _take(self, reference: Any, work: "Work") -> None:
        if (task := work.sent.pop(reference, None)) is None:
            return  # its worker has died
        worker = task.worker
        assert worker is not None
        try:
            reply, state = ray.get(reference)
        except RayTaskError as error:  # the answer could not travel, say
            reply, state = failed(task.message, str(error.cause)), None
        except RayError as error:
            self._mourn(worker, reference, task, work, type(error).__name__)
            return
        worker.sent.remove(reference)
        worker.seconds = time.monotonic() - task.since
        if worker.sent:
            work.sent[worker.sent[0]].since = time.monotonic()  # it begins only now
        if state is not None:
            self.context(task.message.metadata.dst_node_id).state = state
        stamp(reply)
        work.replies.append(reply)

    def _mourn(self, worker: Worker, reference: Any, task: "Task", work: "Work", reason: str) -> None:
        """Have the messages of a worker that died answered by others; count the one that it died of."""
        running = worker.sent[0]
        tasks = {reference: task} | {r: work.sent.pop(r) for r in worker.sent if r != reference}
        self.workers.drop(worker)
        for one in reversed(worker.sent):
            task = tasks[one]
            task.deaths += one == running
            if task.deaths <= self.retries:
                work.waiting.appendleft(task)
                continue
            self.lost += 1
            said = f"its worker died {task.deaths} times ({reason})"
            work.replies.append(delivered(failed(task.message, said)))
        logger.warning("a worker on %s died (%s)", self.workers.name(worker.machine), reason)
        self.workers.grow(len(work.waiting) + len(work.sent))


@dataclass(eq=False)
class Task:
    """A message, and how it has fared."""

    message: Message
    deaths: int = 0  # of workers that were at it
    worker: Worker | None = None
    since: float = 0.0


@dataclass
class Work:
    """A round's messages: those that wait, those that are with workers, and the replies."""

    waiting: deque[Task]
    sent: dict[Any, Task]
    replies: list[Message]
