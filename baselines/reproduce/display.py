"""One display for all runs: bars on a terminal, a line for each run that ends elsewhere."""

import time
from collections.abc import Sequence
from types import TracebackType

from rich import progress as bars
from rich.console import Console

from .estimate import told
from .plan import Trial


class Display:
    """A context that shows how many rounds of all trials are done, and of each that runs."""

    def __init__(self, trials: Sequence[Trial], console: Console) -> None:
        self.console = console
        self.count, self.total = 0, len(trials)
        self.rounds = sum(trial.rounds for trial in trials)
        self.began = time.monotonic()
        self._done: dict[str, int] = {}
        self._first: dict[str, int] = {}
        self._rows: dict[str, bars.TaskID] = {}
        self.bar = bars.Progress(
            bars.TextColumn("{task.description}"),
            bars.BarColumn(),
            bars.MofNCompleteColumn(),
            bars.TextColumn("rounds"),
            bars.TimeElapsedColumn(),
            bars.TextColumn("{task.fields[left]}"),
            console=console,
            disable=not console.is_terminal,
        )
        self.all = self.bar.add_task("all runs", total=self.rounds, left="")

    def __enter__(self) -> "Display":
        """Start the bars."""
        self.bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the bars."""
        self.bar.stop()

    def started(self, trial: Trial) -> None:
        """Show one more run."""
        row = self.bar.add_task(trial.label, total=trial.rounds, left="")
        self._rows[trial.folder.name] = row

    def moved(self, trial: Trial, rounds: int) -> None:
        """Show how far a run has come."""
        name = trial.folder.name
        self._first.setdefault(name, rounds)  # what an earlier process did costs no time now
        self._done[name] = rounds
        self.bar.update(self._rows[name], completed=rounds)
        self.bar.update(self.all, completed=sum(self._done.values()), left=self._left())

    def ended(self, trial: Trial, how: str) -> None:
        """Take a run's bar away and say how it ended."""
        name = trial.folder.name
        self.count += 1
        self._first.setdefault(name, trial.rounds)
        self._done[name] = trial.rounds
        if name in self._rows:
            self.bar.remove_task(self._rows.pop(name))
        self.bar.update(self.all, completed=sum(self._done.values()))
        text = f"[{self.count}/{self.total}] {trial.label}: {how}"
        left = "" if self.console.is_terminal else f"  {self._left()}"
        self.console.print(text + left, markup=False, highlight=False, soft_wrap=True)

    def _left(self) -> str:
        """Return the time left, at the speed so far."""
        seconds = time.monotonic() - self.began
        here = sum(self._done.values()) - sum(self._first.values())
        left = self.rounds - sum(self._done.values())
        return f"{told(seconds * left / here)} left" if here > 0 and left > 0 else ""
