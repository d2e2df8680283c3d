"""Staging: copy the code, to send it to other machines."""

import shutil
from pathlib import Path

from baselines.experiment.overrides import ROOT

PACKAGES = {"strategies": "*.py", "clients": "*.py", "baselines": "*.py", "conf": "*.yaml"}
APP_FILES = ("pyproject.toml", "LICENSE")  # further files that Flower bundles


def copy_code(folder: Path) -> None:
    """Copy the code and the options into a folder."""
    for name, kind in PACKAGES.items():
        for path in (ROOT / name).rglob(kind):
            target = folder / path.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)


def copy_app(folder: Path) -> Path:
    """Copy the files that Flower bundles into a folder; return it, for ``flwr run``.

    In a clone, Flower would scan every file of every virtual environment, for several seconds.
    """
    copy_code(folder)
    for name in APP_FILES:
        shutil.copyfile(ROOT / name, folder / name)
    return folder
