"""Run a table's missing runs, several at a time, within the time budget."""

import argparse
import contextlib
import math
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich import progress as bars
from rich.console import Console

from baselines.engine.run_folder import is_in_use
from baselines.engine.signals import make_interruptible
from baselines.errors import UserError
from baselines.experiment.experiment import Experiment

from . import results
from .findings import pairs
from .paper_tables import PaperTable
from .plan import Trial


def with_available_data(trials: Sequence[Trial], out: Console) -> list[Trial]:
    """Return the trials whose data set can be loaded; print how many others there are, and why.

    The others would fail at once.

    Raises
    ------
    UserError : if none can be loaded
    """
    whys: dict[tuple[str, ...], str] = {}  # by cell: composing a configuration takes a fifth of a second
    lacks: dict[str, str] = {}  # by data set: the hub alone may take half a minute
    for trial in trials:
        if trial.cell.overrides not in whys:
            whys[trial.cell.overrides] = _why_not(trial, lacks)
    available = [trial for trial in trials if not whys[trial.cell.overrides]]
    for why, count in Counter(whys[trial.cell.overrides] for trial in trials).items():
        if why and not available:
            raise UserError(why)
        if why:
            out.print(f"{count} run{'s' * (count > 1)} cannot start: {why}")
    return available


def _why_not(trial: Trial, lacks: dict[str, str]) -> str:
    """Return what is wrong with the data set; empty if nothing is, or if the configuration is wrong."""
    experiment = Experiment(shlex.join(trial.overrides))
    try:
        name = experiment.kind_of_data
    except UserError:  # the run itself reports it
        return ""
    if name not in lacks:
        lacks[name] = ""
        try:
            experiment.dataset  # noqa: B018 - loads it
        except UserError as error:
            lacks[name] = str(error)
    return lacks[name]


SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def seconds_in(text: str) -> float:
    """Return the seconds of a time such as 90s, 40m or 1.5h.

    Raises
    ------
    UserError : for any other text
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text)
    if match is None or float(match[1]) == 0:
        raise UserError(f"--budget {text}: expected a time such as 90s, 40m or 1.5h")
    return float(match[1]) * SECONDS[match[2]]


def choose_most_telling(
    table: PaperTable, trials: Sequence[Trial], missing: Sequence[Trial]
) -> list[Trial]:
    """Return the missing trials, the most informative first.

    A finding compares two cells; it needs a run of both, and each further seed adds to it. So pairs of
    cells come first, seed by seed, those that lack one run before those that lack both; then cells without
    a finding.

    Parameters
    ----------
    trials : all that are planned, with those that are finished
    """
    absent = {trial.folder.name: trial for trial in missing}
    by_cell: dict[tuple[str, ...], list[Trial]] = {}
    for trial in trials:
        by_cell.setdefault(tuple(trial.cell.keys.values()), []).append(trial)
    groups = [(0, a, b) for a, b in pairs(table)] + [(1, keys) for keys in by_cell]
    bundles = [
        (unpaired, seed, [trial.folder.name for trial in own if trial.folder.name in absent])
        for unpaired, *cells in groups
        for seed, own in enumerate(zip(*(by_cell.get(keys, []) for keys in cells), strict=False))
    ]
    bundles.sort(key=lambda bundle: (bundle[0], bundle[1], len(bundle[2])))
    return [absent[name] for name in dict.fromkeys(name for *_, names in bundles for name in names)]


class Display(bars.Progress):
    """Show how many rounds of all trials are done, by a bar on a terminal, and a line per ended run."""

    def __init__(self, trials: Sequence[Trial], console: Console) -> None:
        columns = (
            bars.TextColumn("all runs"),
            bars.BarColumn(),
            bars.MofNCompleteColumn(),
            bars.TextColumn("rounds"),
            bars.TimeElapsedColumn(),
            bars.TimeRemainingColumn(),
        )
        super().__init__(*columns, console=console, disable=not console.is_terminal)
        self._rounds = {trial.folder.name: rounds_done(trial.folder) for trial in trials}
        self._count, self._total = 0, len(trials)
        total = sum({trial.folder.name: trial.rounds for trial in trials}.values())
        self._bar = self.add_task("", total=total, completed=sum(self._rounds.values()))

    def moved(self, trial: Trial, rounds: int) -> None:
        """Update the number of a run's completed rounds."""
        self._rounds[trial.folder.name] = rounds
        self.update(self._bar, completed=sum(self._rounds.values()))

    def ended(self, trial: Trial, how: str) -> None:
        """Print how a run ended."""
        self.moved(trial, trial.rounds)
        self._count += 1
        text = f"[{self._count}/{self._total}] {trial.label}: {how}"
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)


POLL = 0.2  # seconds
END_SECONDS = 20.0  # seconds for runs to end after SIGTERM
LOG = "log.txt"
ENDS = (0, 1)  # exit statuses of a run that finished, and of one that diverged or failed


@dataclass
class Running:
    """Waiting, running and failed trials; each runs as a process with one thread.

    Parameters
    ----------
    jobs : how many run at a time
    finished : says whether a trial's run is finished
    deadline : ``time.monotonic`` at which current runs are ended; they can be resumed
    """

    jobs: int
    finished: Callable[[Trial], bool]
    display: Display
    deadline: float = math.inf
    failed: list[tuple[Trial, str]] = field(default_factory=list)
    _processes: dict[str, tuple[Trial, subprocess.Popen[bytes]]] = field(default_factory=dict)

    def run(self, trials: Sequence[Trial]) -> None:
        """Run all trials; if one fails, record it and continue.

        An interruption, or the deadline, ends the current runs.

        Runs of another process, such as this command before a SIGKILL, are left to it and count as jobs.
        """
        waiting = list(trials)
        with make_interruptible(), self.display, self._ended():
            while (waiting or self._processes) and time.monotonic() < self.deadline:
                elsewhere = {trial.folder for trial in waiting if is_in_use(trial.folder)}
                free = self.jobs - len(self._processes) - len(elsewhere)
                for trial in [one for one in waiting if one.folder not in elsewhere][: max(0, free)]:
                    if trial.folder.name in self._processes:  # for another cell of the same setting
                        continue
                    waiting.remove(trial)
                    self._start(trial)
                self._look()
                time.sleep(POLL)

    def _start(self, trial: Trial) -> None:
        if self.finished(trial):  # by another process, or for another cell of the same setting
            self.display.ended(trial, "finished")
            return
        trial.folder.mkdir(parents=True, exist_ok=True)
        self._processes[trial.folder.name] = trial, _process(trial)

    def _look(self) -> None:
        """Update the runs' progress, and collect those that have ended."""
        for name, (trial, process) in list(self._processes.items()):
            status = process.poll()
            if status is None:
                self.display.moved(trial, rounds_done(trial.folder))
                continue
            del self._processes[name]
            if status in ENDS and self.finished(trial):
                self.display.ended(trial, "finished")
            else:
                self.failed.append((trial, _reason(trial.folder, status)))
                self.display.ended(trial, f"failed: {self.failed[-1][1]}")

    @contextlib.contextmanager
    def _ended(self) -> Iterator[None]:
        """End every process when the context is left: ask first, then insist."""
        try:
            yield
        finally:
            left = [process for _, process in self._processes.values()]
            for process in left:
                process.send_signal(signal.SIGTERM)  # SIGINT is ignored by what started in the background
            deadline = time.monotonic() + END_SECONDS
            for process in left:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.0, deadline - time.monotonic()))
                process.kill()
                process.wait()


def _process(trial: Trial) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "baselines.run", *trial.arguments]
    with open(trial.folder / LOG, "ab") as log:
        return subprocess.Popen(
            command,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C on the terminal reaches this process alone
        )


def rounds_done(folder: Path) -> int:
    """Return the round of the last complete row of metrics.csv; 0 before there is one."""
    with contextlib.suppress(OSError, IndexError, ValueError), open(folder / "metrics.csv", "rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 400))
        return int(file.read().splitlines()[-2].split(b",")[0])
    return 0


def _reason(folder: Path, status: int) -> str:
    """Return why a run failed: the last line of its log."""
    lines = (folder / LOG).read_text(errors="replace").split("\n")
    printed = [line for line in lines if line.strip()]
    return f"{printed[-1].removeprefix('error: ') if printed else f'exit status {status}'} ({folder / LOG})"


def fill(
    options: argparse.Namespace,
    table: PaperTable,
    trials: Sequence[Trial],
    missing: Sequence[Trial],
    out: Console,
) -> list[tuple[Trial, str]]:
    """Run the missing trials, as many as the budget allows; return the failed ones, with reasons."""
    deadline = math.inf
    if options.budget:
        seconds = seconds_in(options.budget)
        deadline = time.monotonic() + seconds - min(END_SECONDS, seconds / 10)  # time for runs to end
        missing = choose_most_telling(table, trials, missing)
    _announce(table, trials, missing, out)
    if options.rerun:
        results.forget(missing)
    running = Running(int(options.jobs), results.is_finished, Display(missing, out), deadline)
    running.run(missing)
    if time.monotonic() >= deadline and not all(map(results.is_finished, missing)):
        out.print(f"--budget {options.budget} is spent: the same command continues")
    return running.failed


def _announce(table: PaperTable, trials: Sequence[Trial], missing: Sequence[Trial], out: Console) -> None:
    """Say what will run."""
    changed = sorted({trial.changes for trial in missing if trial.changes})
    note = f"; not the paper's setting: {' | '.join(changed)}" if changed else ""
    out.print(
        f"{table.paper} {table.name}: {len(missing)} of {len(trials)} runs are missing{note}; "
        f"first: {missing[0].label}"
    )
