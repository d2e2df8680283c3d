"""Provenance: what code, versions and machine a run's numbers come from."""

import contextlib
import os
import platform
import subprocess
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from baselines.experiment import config
from baselines.experiment.experiment import Experiment

PACKAGES = ("flwr", "flwr-datasets", "torch", "torchvision", "numpy", "hydra-core", "ray")


def provenance(this: Experiment) -> dict[str, Any]:
    """Return what environment.json says of a run when it begins."""
    return {
        "overrides": this.overrides,
        "seed": this.settings.seed,
        "identity": this.identity(),
        "setting": this.setting,
        "git_commit": _git_commit(),
        "source_hash": config.source_hash(),
        "versions": {"python": platform.python_version()}
        | {package: version(package) for package in PACKAGES},
        "hardware": {
            "processor": _processor(),
            "cores": os.cpu_count(),
            "device": str(this.device),
            "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        },
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


def _git_commit() -> str | None:
    """Return the commit of the code, with ``-dirty`` after uncommitted changes; None outside git."""
    command = ["git", "-C", str(config.ROOT), "describe", "--always", "--abbrev=40", "--dirty"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
