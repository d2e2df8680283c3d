"""Read the metrics.csv of runs whose files are intact."""

import contextlib
import shlex
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError  # type: ignore[import-untyped]

from baselines.engine.environment import DIVERGED, ENDED_STATUSES, FINISHED, find_damage, read_environment
from baselines.engine.metrics import COLUMNS, NODE_PATTERN, OWN_GROUP, divergence_of
from baselines.errors import UserError
from baselines.experiment.config import choices, leaves
from baselines.experiment.identity import PACKAGES, UNHASHED_SETTINGS

from .names import value_name

# Same setting: runs whose configurations differ only in the seed, or in settings that do not count.
#
# Each run records a hash of its setting. Two hashes are one setting if the configurations differ only in how
# a number is written, 0 or 0.0, or in a cluster's address.


UNNAMED_SETTINGS = ("seed", "data_root", "hydra", *UNHASHED_SETTINGS)  # these do not make another setting
ADDRESS = "runtime.address"  # nor does this, although it is hashed


def hashes(contents: Mapping[Path, dict[str, Any]]) -> dict[Path, str]:
    """Return the setting of each run, from its environment.json."""
    written = {run: one.get("setting") or str(overrides(one)) for run, one in contents.items()}
    first = {setting: run for run, setting in reversed(written.items())}
    known: dict[object, tuple[str, str]] = {}  # a setting and its text, by value
    same: dict[str, str] = {}
    for setting in dict.fromkeys(written.values()):
        counts = _counts(first[setting], contents[first[setting]].get("seed"))
        other, text = known.setdefault(_by_value(counts), (setting, str(counts)))
        same[setting] = other if counts and text != str(counts) else setting
    return {run: same[setting] for run, setting in written.items()}


def overrides(content: dict[str, Any]) -> dict[str, str]:
    """Return the overrides that decide a run's numbers, without the seed and folders."""
    items = (item.lstrip("+~").partition("=") for item in shlex.split(content["overrides"]))
    return {key: value for key, _, value in items if decides(key)}


def decides(key: str) -> bool:
    """Say whether a key distinguishes settings of runs."""
    return _is_hashed(key) and key != ADDRESS


def _is_hashed(key: str) -> bool:
    return key.partition(".")[0] not in UNNAMED_SETTINGS


def configuration(run: Path) -> dict[str, Any]:
    """Return the leaves of a run's configuration by their dotted names; empty if it is damaged."""
    with contextlib.suppress(OSError):
        return _read(run / "config.yaml", (run / "config.yaml").stat().st_mtime_ns)
    return {}


@lru_cache(maxsize=4096)
def _read(path: Path, changed: int) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError, YAMLError, OmegaConfBaseException):
        settings = OmegaConf.to_container(OmegaConf.load(path))
        if isinstance(settings, dict):
            return leaves(settings)
    return {}


def _counts(run: Path, seed: object) -> dict[str, Any]:
    """Return the settings of a run that its hash covers; seeds equal to the run's are None."""
    own = ((key, value) for key, value in sorted(configuration(run).items()) if _is_hashed(key))
    return {key: None if key.endswith(".seed") and value == seed else value for key, value in own}


def _by_value(value: Any) -> object:
    """Return a key that equal settings share: 0 equals 0.0, 1 differs from true, addresses do not count."""
    if isinstance(value, dict):
        return tuple((key, _by_value(item)) for key, item in value.items() if key != ADDRESS)
    if isinstance(value, list):
        return tuple(map(_by_value, value))
    return value if type(value) in (int, float) else f"'{value}'"


# Labels: name settings by the values in which they differ.


TAKEN_COLUMNS = (
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


def describe_runs(runs: list[Path]) -> pd.DataFrame:
    """Return a row for each run: its settings by name, its label ``setting``, its seed and its folder.

    The settings are those that any run's command line names; other runs have their configuration's value.
    If configurations differ elsewhere, as after a change of an option's file, these settings are added. A
    setting named like a column of the frame is called ``option.<name>``. ``runs`` are intact, as
    :func:`baselines.reports.runs.examine_runs` returns them.
    """
    contents = {run: read_environment(run) for run in runs}
    settings = hashes(contents)
    first = {setting: run for run, setting in reversed(settings.items())}
    configurations = {setting: configuration(run) for setting, run in first.items()}
    assignments = {setting: overrides(contents[run]) for setting, run in first.items()}
    keys = list(dict.fromkeys(key for own in assignments.values() for key in own))
    values = {
        setting: _values(keys, assignments[setting], _choices(contents[run]), configurations[setting])
        for setting, run in first.items()
    }
    for key in _find_distinguishing(values, configurations):
        for setting, own in values.items():
            own[key] = _plain(configurations[setting].get(key))
    labels = _labels(values)
    rows = [
        {column(key): value for key, value in values[settings[run]].items()}
        | {"setting": labels[settings[run]], "seed": one["seed"], "run": str(run)}
        for run, one in contents.items()
    ]
    return pd.DataFrame(rows)


def find_restarted(runs: list[Path]) -> list[Path]:
    """Return the runs superseded by another of the same setting and seed.

    A finished run counts before others; among equals, the one started last.
    """
    contents = [read_environment(run) for run in runs]
    began = [str(one.get("started")) for one in contents]
    columns = {
        "run": runs,
        "setting": list(hashes(dict(zip(runs, contents, strict=True))).values()),
        "seed": [one["seed"] for one in contents],
        "finished": [one["status"] in ENDED_STATUSES for one in contents],
        "started": pd.to_datetime(began, utc=True, format="ISO8601", errors="coerce"),
    }
    rows = pd.DataFrame(columns).sort_values(["finished", "started"], kind="stable", na_position="first")
    return list(rows.run[rows.duplicated(["setting", "seed"], keep="last")])


def column(key: str) -> str:
    """Return the column that holds a setting."""
    return f"option.{key}" if key in TAKEN_COLUMNS else key


def _values(
    keys: list[str], assignments: dict[str, str], choices: dict[str, str], settings: dict[str, Any]
) -> dict[str, Any]:
    """Return the value of each key: a group's option, else the configuration's value, else as typed."""
    values: dict[str, Any] = {}
    for key in keys:
        if key in choices:
            values[key] = choices[key]
        else:
            values[key] = _plain(settings.get(key, assignments.get(key)))
    return values


def _find_distinguishing(
    values: dict[str, dict[str, Any]], configurations: dict[str, dict[str, Any]]
) -> list[str]:
    """Return further keys that distinguish settings whose values are all equal so far."""
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
    """Return a unique label for each setting: the values in which they differ."""
    keys = dict.fromkeys(key for own in values.values() for key in own)
    differing = [key for key in keys if len({str(own.get(key)) for own in values.values()}) > 1]
    labels = {}
    for setting, own in values.items():
        parts = [_part(key, own[key]) for key in differing if own.get(key) is not None]
        labels[setting] = ", ".join(parts) or ("others" if differing else "all")
    texts = list(labels.values())
    return {
        setting: label if texts.count(label) == 1 else f"{label} ({setting})"
        for setting, label in labels.items()
    }


def _part(key: str, value: object) -> str:
    """Name a differing value: a strategy by its option, others with their key."""
    return str(value) if key == "strategy" else f"{key}={value}"


def dataset_names(frame: pd.DataFrame) -> list[str]:
    """Return the display names of the data sets of a frame's runs."""
    contents = [read_environment(Path(run)) for run in frame.run.unique()]
    names = [
        value_name(_choices(one)["dataset"], "dataset") for one in contents if "dataset" in _choices(one)
    ]
    return list(dict.fromkeys(names))


def _choices(content: dict[str, Any]) -> dict[str, str]:
    """Return the option of each group; for a run that did not record them, today's."""
    written = content.get("choices")
    if isinstance(written, dict):
        return {str(group): str(option) for group, option in written.items()}
    try:
        return choices(content["overrides"])
    except UserError:  # an option that no longer exists
        return {}


def _plain(value: object) -> object:
    return value if value is None or isinstance(value, str | int | float) else str(value)


# Older versions recorded a run with a loss of NaN as finished, with an accuracy.
HIDES_DIVERGENCE = (
    "environment.json says finished, but the {split} evaluation is not finite from round {server_round} on"
)


def examine_runs(folders: list[Path]) -> tuple[list[Path], dict[Path, str]]:
    """Return the runs at or below ``folders`` that count, sorted, and the reasons for leaving out others.

    Left out are unreadable runs, and those superseded by another (:func:`find_restarted`).
    """
    marks = ("metrics.csv", "environment.json")
    paths = [path.parent for folder in folders for mark in marks for path in folder.rglob(mark)]
    runs = sorted({path.resolve(): path for path in paths}.values())
    reasons = {run: find_damage(run) or _unreadable(run) for run in runs}
    repeated = find_restarted([run for run in runs if reasons[run] is None])
    reasons |= dict.fromkeys(repeated, "another run has the same setting and seed")
    return (
        [run for run, reason in reasons.items() if reason is None],
        {run: reason for run, reason in reasons.items() if reason is not None},
    )


def _unreadable(run: Path) -> str | None:
    try:
        rows = read_measurements(run)
    except UserError as error:
        return str(error)
    if rows.empty:
        return "metrics.csv has no measurement yet"
    if read_environment(run)["status"] != FINISHED:
        return None
    divergence = divergence_of(rows[list(COLUMNS)].itertuples(index=False, name=None))
    return None if divergence is None else HIDES_DIVERGENCE.format(**vars(divergence))


def read_measurements(run: Path) -> pd.DataFrame:
    """Return the rows of a run's metrics.csv.

    Raises
    ------
    UserError : when a row is cut off or has a text instead of a number
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # fields without a heading
            rows = pd.read_csv(run / "metrics.csv", dtype=str, keep_default_na=False, index_col=False)
        if list(rows) != list(COLUMNS) or rows.isna().any(axis=None):
            raise ValueError("a row or the heading is cut off")
        if any(rows[name].str.contains("\n").any() for name in COLUMNS):
            raise ValueError("a quote is not closed")
        return rows.astype({"round": int, "value": float})
    except (
        OSError,
        ValueError,
        pd.errors.ParserWarning,
    ) as error:  # a ValueError: not UTF-8
        raise UserError(f"metrics.csv is damaged ({error})") from error


def by_round(run: Path, split: str, metric: str) -> "pd.Series[float]":
    """Return a metric by round, averaged over the nodes; ``*`` matches any part of its name.

    Raises
    ------
    UserError : when the run has not measured it, or metrics.csv is damaged
    """
    rows = read_measurements(run)
    chosen = rows[(rows.split == split) & rows.metric.map(lambda name: fnmatchcase(name, metric))]
    if chosen.empty:
        raise UserError(f"{run} has no {metric} on the {split} set")
    return over_nodes(chosen, ["round"])


def node_of(models: "pd.Series[str]") -> "pd.Series[int]":
    """Return each row's node by its partition id; missing if it is not about a single node."""
    return models.str.extract(NODE_PATTERN, expand=False).astype("Int64")


def over_nodes(rows: pd.DataFrame, by: list[str]) -> "pd.Series[float]":
    """Return a metric's mean over the nodes, as recorded by the run, or else over the models.

    NaN in one model makes the mean NaN.
    """
    own_group = rows[rows.model == OWN_GROUP].groupby(by).value.mean()
    return own_group.combine_first(mean_of_all(rows, by))


def mean_of_all(rows: pd.DataFrame, by: str | list[str]) -> "pd.Series[float]":
    """Return the mean ``value`` of each group, NaN if any value is."""
    groups = rows.groupby(by).value
    return groups.mean().where(groups.count() == groups.size())


# Tidy: all measurements of many runs as one frame.


MEASURED = ["setting", "seed", "run", "status", "round", "split", "model", "node", "metric", "value"]


def tidy(folders: Iterable[Path]) -> tuple[pd.DataFrame, dict[Path, str]]:
    """Return the frame of :func:`baselines.results.load`, and the runs left out, with reasons.

    Raises
    ------
    UserError : when there is no run to read
    """
    folders = list(folders)
    runs, left_out = examine_runs(folders)
    if not runs:
        for run, reason in left_out.items():
            raise UserError(f"{run}/{reason}: run it again, or move the folder away")
        named = ", ".join(map(str, folders))
        raise UserError(f"no run in {named}: give the folder of a run or of a sweep")
    rows = pd.concat(
        read_measurements(run).assign(run=str(run), status=str(read_environment(run)["status"]))
        for run in runs
    )
    rows["node"] = node_of(rows.model)
    merged = describe_runs(runs).merge(rows, on="run")
    return merged[[*(name for name in merged if name not in MEASURED), *MEASURED]], left_out


# Shown: the metrics of a table or figure, and their titles.


@dataclass(frozen=True)
class Panel:
    """A metric of a split."""

    split: str
    metric: str

    @property
    def title(self) -> str:
        """The label of an axis."""
        if (self.split, self.metric) == ("train", "step_size"):
            return "server step size"
        return f"{self.split} {self.metric}".replace("_", " ").replace("node-test", "node test")

    @property
    def percent(self) -> bool:
        """Whether it is a share, printed in percent."""
        return self.metric in ("accuracy", "accuracy_worst", "accuracy_worst_tenth")


def choose(frame: pd.DataFrame, requested: tuple[str, ...] = (), step_size: bool = False) -> list[Panel]:
    """Return the requested metrics, given as ``metric`` (of the test set) or ``split/metric``.

    Each is returned once. Without a request: everything measured on the test set, accuracy and loss first;
    without a test set, the accuracy on the nodes' own test data, else the loss there. With ``step_size``,
    also the server's step size, if it has ever changed.

    Raises
    ------
    UserError : for a metric that no run has
    """
    available = list(frame[["split", "metric"]].drop_duplicates().itertuples(index=False, name=None))
    if requested:
        return list(dict.fromkeys(_find_panel(name, available) for name in requested))
    tested = [metric for split, metric in available if split == "test"]
    first = [metric for metric in ("accuracy", "loss") if metric in tested]
    panels = [Panel("test", metric) for metric in [*first, *(m for m in tested if m not in first)]]
    if not panels:
        on_nodes = [Panel("node-test", metric) for metric in ("accuracy", "loss")]
        panels = [one for one in on_nodes if (one.split, one.metric) in available][:1]
    steps = frame[(frame.split == "train") & (frame.metric == "step_size")].value
    if (
        step_size
        and len(steps)
        and not np.allclose(steps, steps.iloc[0], rtol=1e-9, atol=0, equal_nan=True)
    ):
        panels.append(Panel("train", "step_size"))
    return panels


def _find_panel(name: str, available: list[tuple[str, str]]) -> Panel:
    split, _, metric = name.rpartition("/")
    key = (split or "test", metric)
    if key in available:
        return Panel(*key)
    names = ", ".join(sorted(own if part == "test" else f"{part}/{own}" for part, own in available))
    raise UserError(f"--metric {name}: no run has measured it; expected one of {names}")


# Remarks: lines that a reader of a table of runs must know.


def remarks(runs: Iterable[Path], left_out: Mapping[Path, str]) -> Iterator[str]:
    """Yield which runs did not finish, which are left out, and where versions differ within a line.

    ``runs`` and ``left_out`` are those of :func:`baselines.reports.runs.examine_runs`.
    """
    contents = {run: read_environment(run) for run in runs}
    for run, one in contents.items():
        if one["status"] not in ENDED_STATUSES:
            yield f"not finished, counted up to its last round ({one['status']}): {run}"
    reasons: dict[str, list[str]] = {}
    for run, reason in left_out.items():
        reasons.setdefault(reason, []).append(str(run))
    for reason, names in reasons.items():
        yield f"left out ({reason}): {', '.join(names)}"
    settings = hashes(contents)
    for package in PACKAGES:
        versions_of: dict[str, dict[str, None]] = {}
        for run, one in contents.items():
            version = (one.get("versions") or {}).get(package)
            versions_of.setdefault(settings[run], {}).update({str(version): None} if version else {})
        if mixed := [list(versions) for versions in versions_of.values() if len(versions) > 1]:
            yield f"one line of the table has {package} {' and '.join(mixed[0])}: their numbers may differ"


def unfinished(runs: Iterable[str]) -> set[str]:
    """Return the runs that have rounds left; one without a status counts as finished."""
    return {
        run for run in runs if read_environment(Path(run)).get("status", FINISHED) not in ENDED_STATUSES
    }


def diverged(frame: pd.DataFrame) -> set[str]:
    """Return the runs that have diverged; none for measurements by hand, which have no status."""
    return set(frame.run[frame.status == DIVERGED]) if "status" in frame else set()


def divergences(frame: pd.DataFrame) -> Iterator[str]:
    """Yield a line that names the runs that have diverged, if any."""
    if runs := sorted(diverged(frame)):
        yield f"diverged, and never the best: {', '.join(runs)}"


def finished(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the measurements of finished runs.

    Raises
    ------
    UserError : if none has finished
    """
    runs = frame.run.unique()
    cut = unfinished(runs)
    if len(cut) == len(runs):
        raise UserError("no run has finished, so that their last rounds cannot be compared")
    return frame[~frame.run.isin(cut)]
