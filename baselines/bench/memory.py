"""Resident memory of a process, from Linux's /proc.

``resource.getrusage`` would not do: a process inherits the peak of the one that started it.
"""

from pathlib import Path

from baselines.errors import UserError


def resident(process: int | str = "self") -> int:
    """Return the bytes that a process has in memory now."""
    return _bytes(process, "VmRSS")


def peak(process: int | str = "self") -> int:
    """Return the most bytes that a process ever had in memory."""
    return _bytes(process, "VmHWM")


def _bytes(process: int | str, key: str) -> int:
    status = Path(f"/proc/{process}/status")
    if not status.exists():
        raise UserError(f"memory is read from {status}: run this workload on Linux")
    lines = (line.split() for line in status.read_text().splitlines())
    return next(int(words[1]) * 1024 for words in lines if words[0] == f"{key}:")
