"""A grid that polls a SuperLink for replies without Flower's delay."""

import time
from collections.abc import Callable, Iterable, Sequence

from flwr.app import Message, MessageType, RecordDict
from flwr.serverapp import Grid

from strategies.shared.flower_private import Run, make_unanswered_reply

from .base import SuiteGrid

SHORTEST_PAUSE, LONGEST_PAUSE = 0.005, 0.5  # seconds between two polls
PAUSE_SHARE = 1 / 40  # pause as a share of the time waited so far, which bounds how late a round ends


class PollingGrid(SuiteGrid):
    """Poll another grid for its replies after pauses that grow from 5 ms to half a second.

    Flower's own grids always sleep 0.1 s (simulation) or 3 s (deployment).

    Parameters
    ----------
    grid : the other grid
    quorum : number of replies that suffice after ``deadline``; None waits for all, and so do queries
    deadline : seconds from the start of a round
    commit : of the app's code, as its submitter states; empty if unknown
    """

    def __init__(
        self, grid: Grid, quorum: int | None = None, deadline: float | None = None, commit: str = ""
    ) -> None:
        self.grid, self.commit = grid, commit
        self.quorum = float("inf") if quorum is None else quorum
        self.deadline = float("inf") if deadline is None else deadline
        self._awaited: dict[str, tuple[Message, float]] = {}  # message and time limit by message id

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        """Send the messages; return the replies that came within ``timeout`` s (None: wait for all).

        With a quorum, return at the deadline if enough have come, else as soon as they have. Errors do
        not count towards the quorum.
        """
        messages = list(messages)
        asks_who = any(message.metadata.message_type == MessageType.QUERY for message in messages)
        waiting = set(self.push_messages(messages))
        started, limit = time.monotonic(), float("inf") if timeout is None else timeout
        replies: list[Message] = []
        while True:
            answers = list(self.pull_messages(waiting))
            replies += answers
            waiting -= {reply.metadata.reply_to_message_id for reply in answers}
            waited = time.monotonic() - started
            enough = not asks_who and sum(not reply.has_error() for reply in replies) >= self.quorum
            if not waiting or waited >= (min(limit, self.deadline) if enough else limit):
                return replies
            time.sleep(min(_pause(waited), limit - waited))

    def receive_arrivals(
        self, messages: Iterable[Message], is_enough: Callable[[Sequence[Message]], bool], timeout: float
    ) -> list[Message]:
        """Send the messages; return the replies since the last call, to earlier messages too.

        Wait until the replies are enough, or none is awaited any more. They are in order of arrival, as
        far as one poll can tell. A message without a reply after ``timeout`` s gets an error reply
        instead, and a later reply is ignored.
        """
        started, messages, replies = time.monotonic(), list(messages), list[Message]()
        self.push_messages(messages)
        self._awaited |= {message.metadata.message_id: (message, started + timeout) for message in messages}
        is_over = is_enough(replies)
        while not is_over and self._awaited:
            if arrived := self._arrived():
                replies += arrived
                is_over = is_enough(replies)
            else:
                time.sleep(_pause(time.monotonic() - started))
        return replies

    def _arrived(self) -> list[Message]:
        """Return the replies available now, and an error for each message that is overdue."""
        replies = list(self.pull_messages(set(self._awaited)))
        for reply in replies:
            self._awaited.pop(reply.metadata.reply_to_message_id, None)
        now = time.monotonic()
        late = [key for key, (_, until) in self._awaited.items() if now > until]
        return replies + [make_unanswered_reply(self._awaited.pop(key)[0]) for key in late]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send the messages; return their ids."""
        return self.grid.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the available replies."""
        return self.grid.pull_messages(message_ids)

    def get_node_ids(self) -> Iterable[int]:
        """Return the ids of the connected nodes."""
        return self.grid.get_node_ids()

    def deployment(self) -> dict[str, str]:
        """Return the run's id, the hash of the app that the nodes run, and its commit."""
        known = {"git_commit": self.commit} if self.commit else {}
        return {"run_id": str(self.run.run_id), "app_hash": self.run.fab_hash} | known

    def set_run(self, run: Run) -> None:
        """Take the run's description."""
        self.grid.set_run(run)

    @property
    def run(self) -> Run:
        """The run's description."""
        return self.grid.run

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """Make a message to one node."""
        return self.grid.create_message(content, message_type, dst_node_id, group_id, ttl)


def _pause(waited: float) -> float:
    """Return the seconds to wait before the next poll."""
    return max(SHORTEST_PAUSE, min(PAUSE_SHARE * waited, LONGEST_PAUSE))
