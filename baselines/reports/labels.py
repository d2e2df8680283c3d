"""Labels: which runs differ in nothing but their seed, and what to call them beside each other."""

import shlex
from pathlib import Path
from typing import Any

import pandas as pd
from omegaconf import OmegaConf

from baselines.engine.environment import environment
from baselines.experiment import config
from baselines.experiment.identity import BESIDE

from .measurements import measured

ASIDE = ("seed", "data_root", "hydra", *BESIDE)  # what makes no other setting


def read(runs: list[Path]) -> dict[str, pd.DataFrame]:
    """Return {label: rows of metrics.csv with columns seed and run}, a label for each setting.

    The label is made of the overrides in which the settings differ. Where those are the same, for an
    option's file was another when a run began, what differs in the configurations follows in brackets.

    ``runs`` are whole, as :func:`baselines.compare.find_runs` has them.
    """
    told = {run: environment(run) for run in runs}
    members: dict[str, list[Path]] = {}
    for run, one in told.items():
        setting = one.get("setting") or str(_overrides(one))  # it is younger than some runs
        members.setdefault(setting, []).append(run)
    labels = _labels({setting: own[0] for setting, own in members.items()}, told)
    return {
        label: pd.concat(measured(run).assign(seed=told[run]["seed"], run=str(run)) for run in own)
        for label, own in zip(labels, members.values(), strict=True)
    }


def _labels(first: dict[str, Path], told: dict[Path, dict[str, Any]]) -> list[str]:
    """Return a label for each setting, no two the same; ``first`` names a run of each."""
    settings, runs = list(first), list(first.values())
    labels = _apart([_overrides(told[run]) for run in runs])
    for label in {label for label in labels if labels.count(label) > 1}:
        same = [place for place, other in enumerate(labels) if other == label]
        inner = _apart([_values(runs[place]) for place in same])
        for place, text in zip(same, inner, strict=True):
            more = text if inner.count(text) == 1 else settings[place]
            labels[place] = f"{label} ({more})" if label else more
    return [label or "all" for label in labels]


def _apart(settings: list[dict[str, str]]) -> list[str]:
    """Return of each setting the values in which they differ, as a text."""
    keys = dict.fromkeys(key for setting in settings for key in setting)
    differing = [key for key in keys if len({setting.get(key) for setting in settings}) > 1]
    return [", ".join(_part(key, setting.get(key)) for key in differing) for setting in settings]


def _overrides(environment: dict[str, Any]) -> dict[str, str]:
    """Return the overrides that decide a run's numbers, the seed aside: not where data and options lie."""
    items = (item.partition("=") for item in shlex.split(environment["overrides"]))
    return {key: value for key, _, value in items if _decides(key)}


def _values(run: Path) -> dict[str, str]:
    """Return the same of all that its configuration says."""
    leaves = config.flat(OmegaConf.to_container(OmegaConf.load(run / "config.yaml")))
    return {key: value for key, value in leaves.items() if _decides(key) and not key.endswith(".seed")}


def _decides(key: str) -> bool:
    return key.lstrip("+~").partition(".")[0] not in ASIDE


def _part(key: str, value: str | None) -> str:
    """Name a differing value: a strategy by its option alone, others with their key."""
    if value is None:
        return f"{key} default"
    return value if key == "strategy" else f"{key}={value}"
