"""The virtual time of synchronous rounds: which replies come in time, and how long a round takes.

A round begins when the one before it has ended. It ends with the last reply; with a ``deadline``, then at
the latest; with ``keep_first``, at the K-th arrival, of two that come at once the lower partition first. A
node that has several messages, as of several groups, works on one after another. A node's failure takes no
time. Federated evaluation takes none either.
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
    seed : of their profiles

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
        """Return the replies of a round that come in time, its messages that are passed over, and its seconds.

        A reply that is late is left out, as that of a node that has not answered.
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
        """Return, by its place, when each reply that is no failure arrives, and what it answers."""
        requests = {message.metadata.message_id: message for message in messages}
        free: dict[int, float] = {}  # when a node has done what it was sent, by partition
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
        """Continue from a run's state after a round: at the sum of the seconds that it has written down."""
        self.now = 0.0
        seconds = by_round(folder, "train/virtual_seconds")
        for number in range(1, server_round + 1):
            self.now += seconds.get(number, 0.0)
