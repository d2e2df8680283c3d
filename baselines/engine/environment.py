"""Write environment.json, and check that a run's files are unchanged."""

import contextlib
import os
import platform
import shlex
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from json import loads
from pathlib import Path
from typing import Any

import torch

from baselines.experiment.device import accelerator, name_of, peak_memory, watch_memory
from baselines.experiment.experiment import Experiment
from baselines.experiment.identity import HASHED_SOURCES, source_hash
from baselines.experiment.overrides import ROOT
from clients.fast.gradient import count_steps, steps_since

CHECKED_FILES = ("metrics.csv", "config.yaml")
FINISHED, DIVERGED, INTERRUPTED = "finished", "diverged", "interrupted"
ENDED_STATUSES = (
    FINISHED,
    DIVERGED,
)  # statuses of completed runs; others may be resumed
REQUIRED_ENTRIES = {
    "overrides": str,
    "seed": int,
    "status": str,
}  # in every environment.json, with its type


def read_environment(folder: Path) -> dict[str, Any]:
    """Return the content of a run's environment.json; empty if it is missing or damaged."""
    with contextlib.suppress(FileNotFoundError, ValueError):
        content = loads((folder / "environment.json").read_text())
        return content if isinstance(content, dict) else {}
    return {}


def size(path: Path) -> int:
    """Return a file's size in bytes; 0 where there is none."""
    return path.stat().st_size if path.exists() else 0


def checksum(path: Path, count: int | None = None) -> str:
    """Return a hash of a file, or of its first ``count`` bytes."""
    with open(path, "rb") as file:
        return sha256(file.read() if count is None else file.read(count)).hexdigest()[:16]


def checksums(folder: Path) -> dict[str, str]:
    """Return the hash of each of ``CHECKED_FILES`` that the folder has."""
    return {name: checksum(folder / name) for name in CHECKED_FILES if (folder / name).is_file()}


def find_damage(folder: Path) -> str | None:
    """Return what is wrong with the files of a run that has ended; None if they are intact.

    A run older than the checksums is checked by the size of metrics.csv alone.
    """
    content = read_environment(folder)
    if not _is_whole(content):
        exists = (folder / "environment.json").exists()
        return f"environment.json is {'damaged' if exists else 'missing'}"
    if size(folder / "metrics.csv") == 0:
        return "metrics.csv is missing or empty"
    if content["status"] == "running":  # or killed: its files have grown since it recorded them
        return None
    if size(folder / "metrics.csv") != content.get("metrics_size", size(folder / "metrics.csv")):
        return "metrics.csv has become longer or shorter since the run wrote it"
    for name, expected in content.get("checksums", {}).items():
        if not (folder / name).is_file():
            return f"{name} is missing"
        if checksum(folder / name) != expected:
            return f"{name} has changed since the run wrote it"
    return None


def _is_whole(content: dict[str, Any]) -> bool:
    if any(type(content.get(key)) is not kind for key, kind in REQUIRED_ENTRIES.items()):
        return False
    try:
        shlex.split(content["overrides"])
    except ValueError:  # a quote that is not closed
        return False
    return type(content.get("checksums", {})) is dict and type(content.get("setting", "")) is str


@contextlib.contextmanager
def name_file_in_errors(path: Path) -> Iterator[None]:
    """Add the file's name to an ``OSError`` without one, such as that of a full disk."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            error.filename = os.fspath(path)
        raise


# Provenance: what code, versions and machine a run's numbers come from.


PACKAGES = ("flwr", "flwr-datasets", "torch", "torchvision", "timm", "numpy", "hydra-core", "ray")


def provenance(experiment: Experiment) -> dict[str, Any]:
    """Return what environment.json records when a run begins."""
    gpu = accelerator()
    return {
        "overrides": experiment.overrides,
        "seed": experiment.settings.seed,
        "identity": experiment.identity(),
        "setting": experiment.setting,
        "choices": experiment.choices,
        "git_commit": git_commit(),
        "source_hash": source_hash(),
        "own_sources": experiment.own_sources,
        "files": experiment.files,
        "versions": {"python": platform.python_version()}
        | {package: _version(package) for package in PACKAGES},
        "hardware": {
            "processor": _processor(),
            "cores": os.cpu_count(),
            "device": str(experiment.device),
            "gpu": name_of(gpu) if gpu else None,
        },
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


class ResourceUsage:
    """Measures what this process uses from now on, for environment.json.

    Parameters
    ----------
    device : where the run computes
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._before = count_steps()
        watch_memory(device)

    def describe(self) -> dict[str, Any]:
        """Return the accelerator's peak memory in bytes, and how the steps were taken.

        None where this process does not know: memory on the CPU, and steps that other processes took.
        Ray's workers report theirs at the end (:func:`merge_usage`).
        """
        steps = steps_since(self._before)
        return {"gpu_peak_bytes": peak_memory(self.device), "steps": steps if any(steps.values()) else None}


def merge_usage(workers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge the usage of several processes: the sum of their steps, and the greatest peak memory.

    Empty without any.
    """
    if not workers:
        return {}
    peaks = [usage["gpu_peak_bytes"] for usage in workers if usage["gpu_peak_bytes"] is not None]
    steps: Counter[str] = Counter()
    for usage in workers:
        steps.update(usage["steps"] or {})
    return {"gpu_peak_bytes": max(peaks, default=None), "steps": dict(steps) or None}


def _version(package: str) -> str | None:
    """Return a package's version; None where it is not installed, as Ray need not be."""
    with contextlib.suppress(PackageNotFoundError):
        return version(package)
    return None


def git_commit() -> str | None:
    """Return the commit of the code, with ``-dirty`` if code or configuration has changed since.

    Other files do not count: results are written into the same repository. None outside git, and where git
    does not track the code, as in an environment inside a user's own repository.
    """
    covered = [f":(glob){pattern}" for pattern in HASHED_SOURCES]
    try:
        if not _git("ls-files", "--", *covered):
            return None
        commit, changed = _git("rev-parse", "HEAD"), _git("status", "--porcelain", "--", *covered)
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{commit}-dirty" if changed else commit


def _git(*arguments: str) -> str:
    command = ["git", "--no-optional-locks", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


# Atomic writes: an interruption or a full disk leaves the old file unchanged.


def write_atomically(target: Path, text: str) -> None:
    """Write a text file beside ``target``, then rename it to ``target``."""
    fresh = target.with_suffix(".tmp")
    try:
        with name_file_in_errors(target):
            fresh.write_text(text, encoding="utf-8", newline="\n")
        os.replace(fresh, target)
    finally:
        fresh.unlink(missing_ok=True)
