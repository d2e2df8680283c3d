"""A grid that looks for replies as soon as they can be there."""

import time
from collections.abc import Iterable

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from strategies.shared.flower_private import Run

from .suite_grid import SuiteGrid

SHORTEST_PAUSE, LONGEST_PAUSE = 0.005, 0.5  # seconds between two looks
PART = 1 / 40  # of the time waited so far: by no more than this a round ends late


class PollingGrid(SuiteGrid):
    """Another grid, asked for its replies after pauses that grow from 5 ms to half a second.

    Flower's own grids sleep 0.1 s (simulation) or 3 s (deployment) whatever a round takes.
    """

    def __init__(self, grid: Grid) -> None:
        self.grid = grid

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        """Send the messages; return the replies that came within ``timeout`` s (None: wait for all)."""
        waiting = set(self.push_messages(messages))
        started, limit = time.monotonic(), float("inf") if timeout is None else timeout
        replies: list[Message] = []
        while True:
            found = list(self.pull_messages(waiting))
            replies += found
            waiting -= {reply.metadata.reply_to_message_id for reply in found}
            waited = time.monotonic() - started
            if not waiting or waited >= limit:
                return replies
            pause = max(SHORTEST_PAUSE, min(PART * waited, LONGEST_PAUSE))
            time.sleep(min(pause, limit - waited))

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send the messages; return their ids."""
        return self.grid.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies that are there."""
        return self.grid.pull_messages(message_ids)

    def get_node_ids(self) -> Iterable[int]:
        """Return the ids of the nodes that are connected."""
        return self.grid.get_node_ids()

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
