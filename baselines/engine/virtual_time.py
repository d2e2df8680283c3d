"""The virtual time of synchronous rounds: which replies come in time, and how long a round takes.

A round begins when the previous one has ended. It ends with the last reply; with a ``deadline``, at that
time at the latest; with ``keep_first``, at the K-th arrival (ties: lower partition first). A node with
several messages, as of several groups, handles them in turn. Failures and evaluation take no time.
"""

import math
from collections.abc import Sequence
from pathlib import Path

from flwr.app import Message

from strategies.core.clock import VirtualClock

from .metrics import by_round, partition_of


class VirtualTime:
    """The time of a run.

    Parameters
    ----------
    clock : how long nodes take
    seed : decides the nodes' speeds

    Attributes
    ----------
    now : virtual seconds since the run began
    """

    def __init__(self, clock: VirtualClock, seed: int) -> None:
        self.clock, self.seed = clock, seed
        self.now = 0.0

    def receive(
        self, messages: Sequence[Message], replies: Sequence[Message]
    ) -> tuple[list[Message], list[Message], float]:
        """Return a round's replies that come in time, the messages passed over, and its virtual seconds.

        A late reply is dropped, as if the node had not answered.
        """
        arrivals = self._arrivals(messages, replies)
        deadline = math.inf if self.clock.deadline is None else self.clock.deadline
        ordered = sorted(
            arrivals, key=lambda place: (arrivals[place][0], partition_of(replies[place]) or 0)
        )
        in_time = [
            k for k in ordered if arrivals[k][0] < math.inf and arrivals[k][0] - self.now <= deadline
        ]
        first, passed_over = in_time[: self.clock.keep_first], list[Message]()
        seconds = max((arrivals[k][0] - self.now for k in first), default=0.0)
        if len(first) == self.clock.keep_first:
            passed_over = [arrivals[k][1] for k in ordered if k not in first]
        elif len(first) < len(ordered) and deadline < math.inf:
            seconds = deadline
        left_out = set(ordered) - set(first)
        self.now += seconds
        return [reply for k, reply in enumerate(replies) if k not in left_out], passed_over, seconds

    def _arrivals(
        self, messages: Sequence[Message], replies: Sequence[Message]
    ) -> dict[int, tuple[float, Message]]:
        """Return, by the position of each successful reply, its arrival time and the message it answers."""
        requests = {message.metadata.message_id: message for message in messages}
        free: dict[int, float] = {}  # time from which a node is idle, by partition
        arrivals: dict[int, tuple[float, Message]] = {}
        for place, reply in enumerate(replies):
            partition_id = partition_of(reply)
            request = requests.get(reply.metadata.reply_to_message_id)
            if partition_id is None or request is None:
                continue
            begins = free.get(partition_id, self.now)
            free[partition_id] = self.clock.arrival(self.seed, partition_id, begins, request, reply)
            arrivals[place] = free[partition_id], request
        return arrivals

    def resume_from(self, folder: Path, server_round: int) -> None:
        """Continue after a round, at the sum of the virtual seconds in metrics.csv."""
        self.now = 0.0
        seconds = by_round(folder, "train/virtual_seconds")
        for number in range(1, server_round + 1):
            self.now += seconds.get(number, 0.0)
