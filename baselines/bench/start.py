"""Measure the processor time until a command responds: of its help, and of a small run's first round.

Each run of a sweep over processes pays for the start. Nearly all of it is imports, so real time would
depend on the disk and on other programs.
"""

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from baselines.experiment.overrides import ROOT

from .report import Contenders, Row, Spread, Workload, alternate

HELP = {"inspect": 1.0, "reproduce": 1.0, "compare": 1.0}  # the goals, in seconds
FIRST_ROUND = 3.0  # likewise, inline on digits


@dataclass(frozen=True)
class Start(Workload):
    """Processor seconds of ``--help``, and of a run up to round 1, inline on digits."""

    def measure(self, repeats: int, peers: bool) -> list[Row]:
        """Measure the commands alternately."""
        helped: Contenders = {
            f"{name} --help": partial(processor_time, f"baselines.{name}", "--help") for name in HELP
        }
        samples = alternate({**helped, "run, to round 1": _to_round_1}, repeats)
        goals = dict(zip(samples, (*HELP.values(), FIRST_ROUND), strict=True))
        return [
            Row(self.name, subject, "processor time", "s", Spread.of(values), at_most=goals[subject])
            for subject, values in samples.items()
        ]


def _to_round_1() -> float:
    with tempfile.TemporaryDirectory() as folder:
        run = ("dataset=digits", "rounds=1", f"hydra.run.dir={folder}")
        return processor_time("baselines.run", *run, until="round 1/")


def processor_time(module: str, *arguments: str, until: str = "") -> float:
    """Return a command's processor seconds up to its first output line that begins with ``until``."""
    command = [sys.executable, "-m", module, *arguments]
    environment = os.environ | {"PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}
    spent = None
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if spent is None and line.startswith(until):
                spent = _spent_by(process.pid)
    if process.returncode or spent is None:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")
    return spent


def _spent_by(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
