"""Running: trials as processes of one thread each, some at a time, under one display."""

import contextlib
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from baselines.engine.run_folder import in_use
from baselines.engine.signals import interruptible

from .display import Display
from .plan import Trial

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
