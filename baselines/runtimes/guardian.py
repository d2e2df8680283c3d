"""Guardian: ends a run's programs when the run is gone, killed with SIGKILL, say, and cannot do so itself.

A program of its own, with nothing but the standard library: its standard input is a pipe from the process
that it watches, and at its end when that process is.
"""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

MARK = "FLORILEGIUM_PROGRAMS"  # the environment variable by which programs and their children are known
PATIENCE = 15.0  # seconds that programs have to end by themselves


def marked(value: str) -> set[int]:
    """Return the process ids of all who carry the mark with this value (on Linux; elsewhere none)."""
    mark = f"{MARK}={value}".encode()
    processes = set()
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):  # it has just ended, or is not ours
            if mark in path.read_bytes().split(b"\0"):
                processes.add(int(path.parent.name))
    return processes


def end(alive: Callable[[], set[int]], patience: float) -> None:
    """End all processes that live: ask first, insist after ``patience`` seconds, and wait as long again."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        deadline = time.monotonic() + patience
        while alive() and time.monotonic() < deadline:
            time.sleep(0.1)


def main(value: str) -> None:
    """Wait for the other end of the pipe to be gone; end all who carry the mark."""
    sys.stdin.buffer.read()
    end(lambda: marked(value), PATIENCE)


if __name__ == "__main__":
    main(sys.argv[1])
