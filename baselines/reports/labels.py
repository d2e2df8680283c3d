"""Labels: which runs differ in nothing but their seed, in what others differ, and what to call them."""

from pathlib import Path
from typing import Any

import pandas as pd

from baselines.engine.environment import ENDED, environment
from baselines.errors import UserError
from baselines.experiment.choices import choices

from .same_setting import configuration, decides, hashes, overrides

TAKEN = (
    "seed",
    "run",
    "status",
    "round",
    "split",
    "model",
    "node",
    "metric",
    "value",
    "setting",
)  # other columns


def described(runs: list[Path]) -> pd.DataFrame:
    """Return a row for each run: its settings by name, its label ``setting``, its seed and its folder.

    The settings are those that any run's command line names; a run that leaves one alone has the value of
    its configuration. Runs whose configurations differ elsewhere (an option's file has changed) have
    those settings, too. A setting with the name of a column of metrics.csv is called ``option.<name>``.

    ``runs`` are whole, as :func:`baselines.reports.measurements.examined` has them.
    """
    told = {run: environment(run) for run in runs}
    settings = hashes(told)
    first = {setting: run for run, setting in reversed(settings.items())}
    configurations = {setting: configuration(run) for setting, run in first.items()}
    given = {setting: overrides(told[run]) for setting, run in first.items()}
    keys = list(dict.fromkeys(key for own in given.values() for key in own))
    values = {
        setting: _values(keys, given[setting], _choices(told[run]), configurations[setting])
        for setting, run in first.items()
    }
    for key in _told_apart_by(values, configurations):
        for setting, own in values.items():
            own[key] = _plain(configurations[setting].get(key))
    labels = _labels(values)
    rows = [
        {column(key): value for key, value in values[settings[run]].items()}
        | {"setting": labels[settings[run]], "seed": one["seed"], "run": str(run)}
        for run, one in told.items()
    ]
    return pd.DataFrame(rows)


def started_again(runs: list[Path]) -> list[Path]:
    """Return the runs that do not count beside another of the same setting and seed.

    One that is finished counts, else or of several the one that was started last.
    """
    told = [environment(run) for run in runs]
    began = [str(one.get("started")) for one in told]
    columns = {
        "run": runs,
        "setting": list(hashes(dict(zip(runs, told, strict=True))).values()),
        "seed": [one["seed"] for one in told],
        "finished": [one["status"] in ENDED for one in told],
        "started": pd.to_datetime(began, utc=True, format="ISO8601", errors="coerce"),
    }
    rows = pd.DataFrame(columns).sort_values(["finished", "started"], kind="stable", na_position="first")
    return list(rows.run[rows.duplicated(["setting", "seed"], keep="last")])


def column(key: str) -> str:
    """Return the column that holds a setting."""
    return f"option.{key}" if key in TAKEN else key


def _values(
    keys: list[str], given: dict[str, str], choices: dict[str, str], settings: dict[str, Any]
) -> dict[str, Any]:
    """Return the resolved value of each key: a group's option, else the configuration's, else as typed."""
    found: dict[str, Any] = {}
    for key in keys:
        if key in choices:
            found[key] = choices[key]
        else:
            found[key] = _plain(settings.get(key, given.get(key)))
    return found


def _told_apart_by(
    values: dict[str, dict[str, Any]], configurations: dict[str, dict[str, Any]]
) -> list[str]:
    """Return the other keys that settings differ in whose values are all the same so far."""
    alike: dict[str, list[str]] = {}
    for setting, own in values.items():
        alike.setdefault(str(own), []).append(setting)
    keys: dict[str, None] = {}
    for same in alike.values():
        all_leaves = [configurations[setting] for setting in same]
        named = dict.fromkeys(key for one in all_leaves for key in one)
        keys |= dict.fromkeys(key for key in named if len({str(one.get(key)) for one in all_leaves}) > 1)
    return [key for key in keys if decides(key) and not key.endswith(".seed")]


def _labels(values: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Return a label for each setting, no two the same: the values in which they differ."""
    keys = dict.fromkeys(key for own in values.values() for key in own)
    differing = [key for key in keys if len({str(own.get(key)) for own in values.values()}) > 1]
    labels = {}
    for setting, own in values.items():
        parts = [_part(key, own[key]) for key in differing if own.get(key) is not None]
        labels[setting] = ", ".join(parts) or ("others" if differing else "all")
    told = list(labels.values())
    return {
        setting: label if told.count(label) == 1 else f"{label} ({setting})"
        for setting, label in labels.items()
    }


def _part(key: str, value: object) -> str:
    """Name a differing value: a strategy by its option alone, others with their key."""
    return str(value) if key == "strategy" else f"{key}={value}"


def _choices(told: dict[str, Any]) -> dict[str, str]:
    """Return the option of each group; of a run that did not write them down, those of today."""
    written = told.get("choices")
    if isinstance(written, dict):
        return {str(group): str(option) for group, option in written.items()}
    try:
        return choices(told["overrides"])
    except UserError:  # an option of then that is no more
        return {}


def _plain(value: object) -> object:
    return value if value is None or isinstance(value, str | int | float) else str(value)
