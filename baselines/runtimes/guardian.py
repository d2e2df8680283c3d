"""Guardian: end a run's programs when the run is gone, for example after SIGKILL, and cannot do so itself.

A separate program that needs only the standard library. Its standard input is a pipe from the process that
it watches, and ends with that process.
"""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

PROGRAMS_VARIABLE = (
    "FLORILEGIUM_PROGRAMS"  # the environment variable that marks programs and their children
)
END_SECONDS = 15.0  # seconds for programs to end by themselves


def find_marked(value: str) -> set[int]:
    """Return the ids of all processes that carry the mark with this value (only on Linux)."""
    mark = f"{PROGRAMS_VARIABLE}={value}".encode()
    processes = set()
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):  # it has just ended, or is another user's
            if mark in path.read_bytes().split(b"\0"):
                processes.add(int(path.parent.name))
    return processes


def end(alive: Callable[[], set[int]], patience: float) -> None:
    """End all live processes: SIGTERM, then SIGKILL after ``patience`` seconds, and wait as long again."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        deadline = time.monotonic() + patience
        while alive() and time.monotonic() < deadline:
            time.sleep(0.1)


def main(value: str) -> None:
    """Wait until the pipe closes, then end all processes that carry the mark."""
    sys.stdin.buffer.read()
    end(lambda: find_marked(value), END_SECONDS)


if __name__ == "__main__":
    main(sys.argv[1])
