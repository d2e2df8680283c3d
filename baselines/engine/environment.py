"""A run's account of itself, environment.json, and whether the files it tells of are as they were."""

import contextlib
import os
import shlex
from collections.abc import Iterator
from hashlib import sha256
from json import loads
from pathlib import Path
from typing import Any

FILES = ("metrics.csv", "config.yaml")
FINISHED, DIVERGED = "finished", "diverged"
ENDED = (
    FINISHED,
    DIVERGED,
)  # statuses of runs that have no round left; of others there may be more to come
WANTED = {"overrides": str, "seed": int, "status": str}  # what every account has


def environment(folder: Path) -> dict[str, Any]:
    """Return what a run has written of itself; nothing where it has not, or where that is damaged."""
    with contextlib.suppress(FileNotFoundError, ValueError):
        told = loads((folder / "environment.json").read_text())
        return told if isinstance(told, dict) else {}
    return {}


def size(path: Path) -> int:
    """Return a file's size in bytes; 0 where there is none."""
    return path.stat().st_size if path.exists() else 0


def checksum(path: Path, count: int | None = None) -> str:
    """Return a hash of a file, or of its first ``count`` bytes."""
    with open(path, "rb") as file:
        return sha256(file.read() if count is None else file.read(count)).hexdigest()[:16]


def checksums(folder: Path) -> dict[str, str]:
    """Return the hash of each file that a run's account stands for."""
    return {name: checksum(folder / name) for name in FILES if (folder / name).is_file()}


def damage(folder: Path) -> str | None:
    """Return what is wrong with the files of a run that has ended, in a few words; None where nothing is.

    A run older than the checksums tells nothing but the size of metrics.csv.
    """
    told = environment(folder)
    if not _is_whole(told):
        there = (folder / "environment.json").exists()
        return f"environment.json is {'damaged' if there else 'missing'}"
    if size(folder / "metrics.csv") == 0:
        return "metrics.csv is missing or empty"
    if told["status"] == "running":  # or killed: its files go on beyond what it has told
        return None
    if size(folder / "metrics.csv") != told.get("metrics_size", size(folder / "metrics.csv")):
        return "metrics.csv has become longer or shorter since the run wrote it"
    for name, expected in told.get("checksums", {}).items():
        if not (folder / name).is_file():
            return f"{name} is missing"
        if checksum(folder / name) != expected:
            return f"{name} has changed since the run wrote it"
    return None


def _is_whole(told: dict[str, Any]) -> bool:
    if any(type(told.get(key)) is not kind for key, kind in WANTED.items()):
        return False
    try:
        shlex.split(told["overrides"])
    except ValueError:  # a quote that is not closed
        return False
    return type(told.get("checksums", {})) is dict and type(told.get("setting", "")) is str


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let an error of the disk name the file: one that is full says nothing of it."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            error.filename = os.fspath(path)
        raise
