"""Filling: the runs that a table lacks, all of them or as many as there is time for."""

import argparse
import math
import shlex
import time
from collections.abc import Sequence
from functools import partial

from rich.console import Console

from baselines.errors import UserError
from baselines.experiment import device
from baselines.experiment.experiment import Experiment

from . import at_once, budget, collect
from .display import Display
from .estimate import Calibration, told
from .paper_tables import PaperTable
from .plan import Trial
from .running import PATIENCE, Running, rounds_done

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
        seconds = budget.seconds_in(options.budget)
        deadline = began + seconds - min(PATIENCE, seconds / 10)  # runs are given that long to end
        left, there = partial(_left, speeds), gain * (deadline - time.monotonic())
        missing, fitting = budget.most_telling(table, trials, missing, left, there)
        out.print(f"about {fitting} of them fit {options.budget}; first: {missing[0].label}")
    if options.rerun:
        collect.forget(missing)
    running = Running(jobs, collect.is_finished, Display(missing, out), deadline)
    running.run(missing)
    if time.monotonic() >= deadline and not all(map(collect.is_finished, missing)):
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
    jobs, gain = at_once.measured(trial)
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
