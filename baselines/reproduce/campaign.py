"""Filling: the runs that a table lacks, all of them or as many as there is time for."""

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
from functools import partial
from pathlib import Path
from types import TracebackType

from rich import progress as bars
from rich.console import Console

from baselines.engine.run_folder import in_use
from baselines.engine.signals import interruptible
from baselines.errors import UserError
from baselines.experiment import device
from baselines.experiment.experiment import Experiment

from . import results
from .concurrency import Calibration, measure_concurrency, told
from .findings import pairs
from .paper_tables import PaperTable
from .plan import Trial

# At hand: the runs whose data set is here; the others would begin only to fail.


def at_hand(trials: Sequence[Trial], out: Console) -> list[Trial]:
    """Return the trials whose data set can be loaded; say how many others there are, and why.

    Raises
    ------
    UserError : where none can be
    """
    whys: dict[tuple[str, ...], str] = {}  # of a cell: composing a configuration takes a fifth of a second
    lacks: dict[str, str] = {}  # of a data set: the hub alone is asked for half a minute
    for trial in trials:
        if trial.cell.overrides not in whys:
            whys[trial.cell.overrides] = _why_not(trial, lacks)
    found = [trial for trial in trials if not whys[trial.cell.overrides]]
    for why, count in Counter(whys[trial.cell.overrides] for trial in trials).items():
        if why and not found:
            raise UserError(why)
        if why:
            out.print(f"{count} run{'s' * (count > 1)} cannot begin: {why}")
    return found


def _why_not(trial: Trial, lacks: dict[str, str]) -> str:
    """Return what is wrong with the data set; nothing where all is well, or where more than it is wrong."""
    this = Experiment(shlex.join(trial.overrides))
    try:
        name = this.kind_of_data
    except UserError:  # the run itself says so
        return ""
    if name not in lacks:
        lacks[name] = ""
        try:
            this.dataset  # noqa: B018 - loads it
        except UserError as error:
            lacks[name] = str(error)
    return lacks[name]


# Budget: which of the missing runs tell most in the time that there is.
#
# A finding is a comparison of two cells; it says something once both have a run, and more with each further
# seed. The runs that complete a pair of cells cheaply come first, those of cells that no finding speaks of
# last. What does not fit as a whole comes after all that does: it is begun, and goes on another time.


SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True)
class Bundle:
    """Runs that tell something together.

    Parameters
    ----------
    paired : whether they complete a pair of cells that a finding compares
    seed : the how manieth seed of their cells they complete, from 1
    trials : those that are missing
    """

    paired: bool
    seed: int
    trials: tuple[Trial, ...]


def seconds_in(text: str) -> float:
    """Return the seconds of a time such as 90s, 40m or 1.5h.

    Raises
    ------
    UserError : for any other text
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text)
    if found is None or float(found[1]) == 0:
        raise UserError(f"--budget {text}: expected a time such as 90s, 40m or 1.5h")
    return float(found[1]) * SECONDS[found[2]]


def most_telling(
    table: PaperTable,
    trials: Sequence[Trial],
    missing: Sequence[Trial],
    cost: Callable[[Trial], float],
    budget: float,
) -> tuple[list[Trial], int]:
    """Return the missing trials, the most telling first, and how many of them fit the budget.

    Parameters
    ----------
    trials : all that are planned, with those that are finished
    cost : seconds that a trial takes
    budget : seconds, of all jobs together
    """
    left, ordered, fitting = budget, list[Trial](), 0
    absent = {trial.folder.name: trial for trial in missing}
    costs = {name: cost(trial) for name, trial in absent.items()}
    bundles = list(_bundles(table, trials))
    while absent:
        best, worth, price = list[str](), (False, False, -1.0), 0.0
        for bundle in bundles:
            names = {trial.folder.name for trial in bundle.trials} & absent.keys()
            total = sum(costs[name] for name in names)
            this = (total <= left, bundle.paired, 1 / (bundle.seed * (total or 1.0)))
            if names and this > worth:
                best, worth, price = sorted(names), this, total
        ordered += [absent.pop(name) for name in best]
        left -= price
        fitting += len(best) * worth[0]
    return ordered, fitting


def _bundles(table: PaperTable, trials: Sequence[Trial]) -> Iterator[Bundle]:
    """Yield for each pair of cells, and for each cell, its first seed, its first two, and so on."""
    by_cell: dict[tuple[str, ...], list[Trial]] = {}
    for trial in trials:
        by_cell.setdefault(tuple(trial.cell.keys.values()), []).append(trial)
    for better, worse in pairs(table):
        a, b = by_cell.get(better, []), by_cell.get(worse, [])
        for count in range(1, min(len(a), len(b)) + 1):
            yield Bundle(True, count, (*a[:count], *b[:count]))
    for own in by_cell.values():
        for count in range(1, len(own) + 1):
            yield Bundle(False, count, tuple(own[:count]))


# One display for all runs: bars on a terminal, a line for each run that ends elsewhere.


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


# Running: trials as processes of one thread each, some at a time, under one display.


POLL = 0.2  # seconds
PATIENCE = 20.0  # seconds that runs have to end when they are asked to
LOG = "log.txt"
ENDS = (0, 1)  # the exit statuses of a run that finished, and of one that has diverged, or failed


@dataclass
class Running:
    """Trials that wait, run and have failed.

    Parameters
    ----------
    jobs : how many run at a time
    finished : tells whether a trial's run is there
    deadline : when runs under way are ended, as ``time.monotonic`` tells it; they go on another time
    """

    jobs: int
    finished: Callable[[Trial], bool]
    display: Display
    deadline: float = math.inf
    failed: list[tuple[Trial, str]] = field(default_factory=list)
    _processes: dict[str, tuple[Trial, subprocess.Popen[bytes]]] = field(default_factory=dict)

    def run(self, trials: Sequence[Trial]) -> None:
        """Run all; one that fails is noted, and the rest goes on.

        An interruption, or the deadline, ends those that run.

        Runs that another process has under way are left to it, and count among the jobs: those, say, of
        this command before it was killed with SIGKILL.
        """
        waiting = list(trials)
        with interruptible(), self.display, self._ended():
            while (waiting or self._processes) and time.monotonic() < self.deadline:
                elsewhere = {trial.folder for trial in waiting if in_use(trial.folder)}
                free = self.jobs - len(self._processes) - len(elsewhere)
                for trial in [one for one in waiting if one.folder not in elsewhere][: max(0, free)]:
                    if trial.folder.name in self._processes:  # of another cell of the same setting
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
        self.display.started(trial)

    def _look(self) -> None:
        """See how far the runs have come, and which have ended."""
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
            deadline = time.monotonic() + PATIENCE
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
    """Return the round of the last whole row of metrics.csv; 0 before there is one."""
    with contextlib.suppress(OSError, IndexError, ValueError), open(folder / "metrics.csv", "rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 400))
        return int(file.read().splitlines()[-2].split(b",")[0])
    return 0


def _reason(folder: Path, status: int) -> str:
    """Return why a run failed: the last line of its log."""
    lines = (folder / LOG).read_text(errors="replace").split("\n")
    said = [line for line in lines if line.strip()]
    return f"{said[-1].removeprefix('error: ') if said else f'exit status {status}'} ({folder / LOG})"


AUTO = "auto"


def fill(
    options: argparse.Namespace,
    table: PaperTable,
    trials: Sequence[Trial],
    missing: Sequence[Trial],
    out: Console,
) -> list[tuple[Trial, str]]:
    """Run what is missing, or as much as there is time for; return the trials that failed, and why."""
    began, speeds = time.monotonic(), Calibration()
    deadline = math.inf
    jobs, gain = _jobs(options, missing[0], out)
    _announce(table, trials, missing, jobs, speeds, out)
    if options.budget:
        seconds = seconds_in(options.budget)
        deadline = began + seconds - min(PATIENCE, seconds / 10)  # runs are given that long to end
        left, there = partial(_left, speeds), gain * (deadline - time.monotonic())
        missing, fitting = most_telling(table, trials, missing, left, there)
        out.print(f"about {fitting} of them fit {options.budget}; first: {missing[0].label}")
    if options.rerun:
        results.forget(missing)
    running = Running(jobs, results.is_finished, Display(missing, out), deadline)
    running.run(missing)
    if time.monotonic() >= deadline and not all(map(results.is_finished, missing)):
        out.print(f"--budget {options.budget} is spent: the same command continues")
    return running.failed


def _jobs(options: argparse.Namespace, trial: Trial, out: Console) -> tuple[int, float]:
    """Return how many run at a time, and how many times one's work they do together."""
    where = Experiment(shlex.join(trial.overrides)).settings.device
    if said := device.chosen(where):
        out.print(said)
    on_gpu = device.device_of(where).type != "cpu"
    if options.jobs != AUTO and not (options.jobs is None and options.budget and on_gpu):
        return int(options.jobs or 1), float(options.jobs or 1)
    jobs, gain = measure_concurrency(trial)
    out.print(f"--jobs {jobs}: as measured, {gain:.1f} times the steps of one run at a time")
    return jobs, gain


def _left(speeds: Calibration, trial: Trial) -> float:
    """Return the seconds that a trial takes from where it stands."""
    return speeds.of(trial) * (1 - rounds_done(trial.folder) / trial.rounds)


def _announce(
    table: PaperTable,
    trials: Sequence[Trial],
    missing: Sequence[Trial],
    jobs: int,
    speeds: Calibration,
    out: Console,
) -> None:
    """Say what will run and how long it takes, learnt from a few steps."""
    count = f"{len(missing)} of {len(trials)} runs are missing"
    changed = sorted({trial.changes for trial in missing if trial.changes})
    note = f"; not the paper's setting: {' | '.join(changed)}" if changed else ""
    try:
        seconds = speeds.seconds(missing) / jobs
    except UserError as error:
        out.print(f"{table.paper} {table.name}: {count}{note}; time unknown: {error}")
        return
    out.print(f"{table.paper} {table.name}: {count}{note}; about {told(seconds)} with --jobs {jobs}")
