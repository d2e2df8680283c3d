"""How a run shows where it is: a live bar on a terminal, plain lines elsewhere."""

import logging
import os
import re
import sys
from types import TracebackType
from typing import TextIO

from rich import progress as bars
from rich.console import Console
from rich.logging import RichHandler


def is_colored(stream: TextIO) -> bool:
    """Say whether lines to a stream may have colours: on a terminal, where NO_COLOR is not set."""
    return stream.isatty() and not os.environ.get("NO_COLOR")


def without_colors(text: str) -> str:
    """Return a text without the codes that colour it."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def set_log_colors() -> None:
    """Colour Flower's log lines where stderr may have colours."""
    from strategies.shared.flower_private import update_console_handler

    update_console_handler(colored=is_colored(sys.stderr))


class Progress:
    """A context in which each round is shown with its loss, accuracy, time and the time left.

    Parameters
    ----------
    rounds : how many there will be
    name : what each line begins with where several runs write to one terminal, which then has no bar
    """

    def __init__(self, rounds: int, name: str = "") -> None:
        self.rounds, self.name = rounds, name
        self.console = Console()
        self.bar: bars.Progress | None = None
        if self.console.is_terminal and not name:
            self.bar = bars.Progress(
                bars.TextColumn("round"),
                bars.MofNCompleteColumn(),
                bars.BarColumn(),
                bars.TextColumn("{task.fields[text]}"),
                bars.TimeElapsedColumn(),
                bars.TextColumn("left"),
                bars.TimeRemainingColumn(),
                console=self.console,
            )
            self.task = self.bar.add_task("rounds", total=rounds, text="")

    def __enter__(self) -> "Progress":
        """Start the bar, and let log lines appear above it."""
        if self.bar:
            self.bar.start()
            logger = logging.getLogger("flwr")
            self.handlers, logger.handlers = (
                logger.handlers,
                [RichHandler(console=self.console, show_path=False)],
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the bar and put the log handlers back."""
        if self.bar:
            self.bar.stop()
            logging.getLogger("flwr").handlers = self.handlers

    def show(self, server_round: int, metrics: dict[str, float]) -> None:
        """Show the round's test metrics; without any (not evaluated) only the count moves on."""
        text = "  ".join(f"{name} {value:.4g}" for name, value in metrics.items())
        if self.bar:
            self.bar.update(self.task, completed=server_round)
            if text:
                self.bar.update(self.task, text=text)
        else:
            line = f"{self.name}round {server_round}/{self.rounds}  {text}"
            self.console.print(line.rstrip(), highlight=False)
