"""Provenance: what code, versions and machine a run's numbers come from."""

import contextlib
import os
import platform
import subprocess
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from baselines.experiment.device import accelerator, name_of, peak_memory, watch_memory
from baselines.experiment.experiment import Experiment
from baselines.experiment.places import ROOT
from baselines.experiment.source import COVERED, source_hash
from clients.fast import taken

PACKAGES = ("flwr", "flwr-datasets", "torch", "torchvision", "timm", "numpy", "hydra-core", "ray")


def provenance(this: Experiment) -> dict[str, Any]:
    """Return what environment.json says of a run when it begins."""
    gpu = accelerator()
    return {
        "overrides": this.overrides,
        "seed": this.settings.seed,
        "identity": this.identity(),
        "setting": this.setting,
        "choices": this.choices,
        "git_commit": git_commit(),
        "source_hash": source_hash(),
        "own_sources": this.own_sources,
        "versions": {"python": platform.python_version()}
        | {package: _version(package) for package in PACKAGES},
        "hardware": {
            "processor": _processor(),
            "cores": os.cpu_count(),
            "device": str(this.device),
            "gpu": name_of(gpu) if gpu else None,
        },
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


class Used:
    """What this process uses from now on, as environment.json says when a run has ended.

    Parameters
    ----------
    device : where the run computes
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._before = taken.steps()
        watch_memory(device)

    def told(self) -> dict[str, Any]:
        """Return the accelerator's peak memory in bytes, and how the steps were taken.

        None where this process does not know: on the CPU, and of steps that other processes took. Ray's
        workers tell theirs in the end (:func:`joined`).
        """
        steps = taken.since(self._before)
        return {"gpu_peak_bytes": peak_memory(self.device), "steps": steps if any(steps.values()) else None}


def joined(workers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what several processes have used together: their steps' sums, and the greatest peak memory.

    Nothing where there are none.
    """
    if not workers:
        return {}
    peaks = [told["gpu_peak_bytes"] for told in workers if told["gpu_peak_bytes"] is not None]
    steps: Counter[str] = Counter()
    for told in workers:
        steps.update(told["steps"] or {})
    return {"gpu_peak_bytes": max(peaks, default=None), "steps": dict(steps) or None}


def _version(package: str) -> str | None:
    """Return a package's version; None where it is not installed, as Ray need not be."""
    with contextlib.suppress(PackageNotFoundError):
        return version(package)
    return None


def git_commit() -> str | None:
    """Return the commit of the code, with ``-dirty`` where the code or configuration is not that commit's.

    Other files do not count: results are written where they are committed. None outside git, and where the
    code is not in it, as in an environment within a repository of the user's own.
    """
    covered = [f":(glob){pattern}" for pattern in COVERED]
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
