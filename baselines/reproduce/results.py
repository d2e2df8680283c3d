"""Collect run folders into ``ours/<table>.csv``: one row per cell, seed and changes, with provenance.

    <key columns>, seed, value, rounds, scale, changes, config, numpy, timm, torch, flwr, commit, source,
    processor, device, seconds

``changes`` are the overrides in which the run departs from the paper's setting; ``config`` is a hash of the
whole configuration, ``source`` one of the code. ``<table>_curves.csv`` has the figures' curves, thinned to
``POINTS`` rounds. A new row replaces the old one of the same cell, seed and changes.
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd
from hydra.utils import get_method

from baselines.engine.environment import ENDED_STATUSES, find_damage, read_environment, write_atomically
from baselines.errors import UserError
from baselines.experiment.identity import PACKAGES, Variants, versions
from baselines.reports.runs import by_round

from .paper_tables import PaperTable, tables
from .plan import Trial

POINTS = 2000


def has_ended(trial: Trial) -> bool:
    """Say whether the trial's run has finished or diverged; its files may have changed since."""
    content = read_environment(trial.folder)
    return content.get("status") in ENDED_STATUSES and content.get("identity") == trial.folder.name


def is_finished(trial: Trial) -> bool:
    """Say whether the trial's run has ended, and its files are unchanged."""
    return has_ended(trial) and find_damage(trial.folder) is None


def find_damaged(trials: Sequence[Trial]) -> Iterator[str]:
    """Yield a line for each trial whose run has ended and whose files have changed since."""
    for trial in filter(has_ended, trials):
        if wrong := find_damage(trial.folder):
            yield f"damaged, so not finished: {trial.label}: {wrong} ({trial.folder})"


def forget(trials: Sequence[Trial]) -> None:
    """Remove the ended runs of trials that will be run again."""
    for trial in filter(has_ended, trials):
        shutil.rmtree(trial.folder)


def known_trials(trials: Sequence[Trial], rows: pd.DataFrame, *, any_version: bool = False) -> set[str]:
    """Return the folder names of the trials with results in ``rows``.

    With ``any_version``, results computed with other versions of the packages count too.
    """
    names = set()
    here = versions()
    for row in rows.to_dict("records"):
        if any_version or all(str(row[package]) == here[package] for package in PACKAGES):
            names.add((row["config"], str(row["seed"])))
    return {trial.folder.name for trial in trials if (trial.config, str(trial.seed)) in names}


def read(path: Path) -> pd.DataFrame:
    """Return a CSV file of results with all values as texts; empty if there is none.

    Raises
    ------
    UserError : when it is damaged
    """
    if not path.exists():
        return pd.DataFrame()
    try:
        rows = pd.read_csv(path, dtype=str, keep_default_na=False)
    except ValueError as error:  # as pandas' own errors are, and undecodable bytes
        raise UserError(f"{path} is damaged: restore it, or remove it and collect again") from error
    if missing := {"seed", "value", "changes"} - set(rows):
        named = ", ".join(sorted(missing))
        raise UserError(f"{path} has no column {named}: restore it, or remove it and collect again")
    return rows


def collect(table: PaperTable, trials: Sequence[Trial], scale: str, folder: Path) -> pd.DataFrame:
    """Add the finished trials to the files in ``folder``; return all rows of ``<table>.csv``."""
    done = [trial for trial in trials if is_finished(trial)]
    target = folder / f"{table.name}.csv"
    fresh = [*_of_curves(table, folder), *(_row(table, trial, scale) for trial in done)]
    same = [*table.keys, "seed", "changes"]
    latest = {tuple(str(row[key]) for key in same): row for row in fresh}  # a run before its thinned curve
    rows = _merge_rows(table, read(target), [*latest.values()], [])
    _write(rows, target)
    if table.has_curves and not any(cell.paper_mean is not None for cell in table.cells()):
        curves = folder / f"{table.name}_curves.csv"
        points = [point for trial in done for point in _points(table, trial)]
        _write(_merge_rows(table, read(curves), points, ["round"]), curves)
    return rows


def _of_curves(table: PaperTable, folder: Path) -> Iterator[dict[str, Any]]:
    """Yield a row for each run whose curve another table holds, with the run's provenance."""
    if table.curves is None:
        return
    source = tables(table.paper)[table.curves]
    rows, points = (read(folder / f"{source.name}{suffix}.csv") for suffix in ("", "_curves"))
    same = [*table.keys, "seed", "changes"]
    curves = {} if points.empty else dict(list(points.groupby(same, sort=False)))
    cells = {tuple(cell.keys.values()) for cell in table.cells()}
    for row in rows.to_dict("records"):
        own = curves.get(tuple(row[key] for key in same))
        if own is not None and tuple(row[key] for key in table.keys) in cells:
            curve = pd.Series(own.value.astype(float).to_numpy(), index=own["round"].astype(int))
            yield {str(key): text for key, text in row.items()} | {"value": f"{_measure(table, curve):.6g}"}


def _measure(table: PaperTable, of: Any) -> float:
    assert table.measure is not None
    return table.scale * float(get_method(table.measure)(of))


def read_curve(table: PaperTable, folder: Path) -> "pd.Series[float]":
    """Return the table's metric by round, averaged over the nodes, or its measured curve, scaled as in the
    paper.

    Raises
    ------
    UserError : when the run has not measured it
    """
    if table.measure is not None and table.by != "round":
        curve: pd.Series[float] = get_method(table.measure)(folder)
        return curve * table.scale
    return by_round(folder, table.split, table.metric) * table.scale


def has_lower_better(table: PaperTable) -> bool:
    """Say whether a lower number of the table is better."""
    return table.lower or table.metric == "loss"


def reduce_curve(table: PaperTable, values: "pd.Series[float]") -> float:
    """Reduce a curve to the number that the table prints."""
    if table.reduction == "last10":
        return float(values.tail(10).mean(skipna=False))
    if table.reduction == "best":
        return float(values.min() if has_lower_better(table) else values.max())
    return float(values.iloc[-1])


def _row(table: PaperTable, trial: Trial, scale: str) -> dict[str, Any]:
    content = read_environment(trial.folder)
    hardware = content["hardware"]
    packages = {name: content["versions"].get(name, "") for name in (*PACKAGES, "flwr")}
    if all(packages[name] in (here, "") for name, here in versions().items()):
        packages |= versions()  # a run that did not record all, of this machine by its identity
    return {
        **trial.cell.keys,
        "seed": trial.seed,
        "value": f"{_value(table, trial.folder):.6g}",
        "rounds": trial.rounds,
        "scale": scale if trial.changes else "full",
        "changes": trial.changes,
        "config": trial.config,
        **packages,
        "commit": content["git_commit"] or "",
        "source": content["source_hash"],
        "processor": hardware["processor"] if hardware["device"] == "cpu" else hardware["gpu"],
        "device": hardware["device"],
        "seconds": f"{content['wall_seconds']:.0f}",
    }


def _value(table: PaperTable, folder: Path) -> float:
    if table.curves is not None:
        return _measure(table, read_curve(tables(table.paper)[table.curves], folder))
    if table.measure is not None and table.by == "round":
        return _measure(table, folder)
    return reduce_curve(table, read_curve(table, folder))


def _points(table: PaperTable, trial: Trial) -> list[dict[str, Any]]:
    values = read_curve(table, trial.folder)
    some = np.unique(np.linspace(0, len(values) - 1, POINTS).round().astype(int))
    fixed = {**trial.cell.keys, "seed": trial.seed, "changes": trial.changes}
    return [fixed | {"round": values.index[i], "value": f"{values.iloc[i]:.6g}"} for i in some]


def _merge_rows(
    table: PaperTable, old: pd.DataFrame, new: list[dict[str, Any]], within: list[str]
) -> pd.DataFrame:
    """Return old and new rows in the paper's order of cells; new ones replace old ones."""
    fresh = pd.DataFrame(new).astype(str)
    if fresh.empty:
        return old
    same = [*table.keys, "seed", "changes"]
    if not old.empty:
        replaced = old.set_index(same).index.isin(fresh.set_index(same).index)
        fresh = pd.concat([old[~replaced], fresh])
    order = {tuple(cell.keys.values()): place for place, cell in enumerate(table.cells())}
    place = [order.get(tuple(keys), len(order)) for keys in fresh[list(table.keys)].to_numpy()]
    sorting = fresh.assign(_place=place, _seed=fresh.seed.astype(int))
    by = ["_place", "changes", "_seed"]
    if within:
        sorting["_round"] = fresh["round"].astype(int)
        by.append("_round")
    return sorting.sort_values(by, kind="stable")[list(fresh)].reset_index(drop=True)


def _write(rows: pd.DataFrame, target: Path) -> None:
    if not rows.empty:
        write_atomically(target, rows.to_csv(index=False, lineterminator="\n"))


# Our number for a cell, from its rows.
#
# A cell's rows at the paper's own setting count. Without any, those with the same changes and the most rounds
# count, and the changes are printed with them. Numbers of further settings are kept apart.


@dataclass(frozen=True)
class Ours:
    """Our number for one cell.

    Parameters
    ----------
    by_seed : the value of each seed
    changes : how it departs from the paper's setting; empty if it does not
    earlier : whether it was measured with a configuration that the cell no longer has
    seeded : whether the seed decides anything
    torch : the version used, if it is not that of most of the table
    configs : the hashes of the runs' configurations
    """

    by_seed: Mapping[int, float]
    changes: str
    earlier: bool = False
    seeded: bool = True
    torch: str = ""
    configs: frozenset[str] = field(default=frozenset(), compare=False)

    @property
    def mean(self) -> float:
        """The mean over the seeds."""
        return fmean(self.by_seed.values())

    @property
    def std(self) -> float | None:
        """The standard deviation over the seeds; None for a single one."""
        return float(pd.Series(self.by_seed).std()) if len(self.by_seed) > 1 else None

    @property
    def note(self) -> str:
        """The note printed beside the number."""
        reduced = f"not the paper's setting: {self.changes}" if self.changes else ""
        earlier = "of an earlier configuration" if self.earlier else ""
        return "; ".join(filter(None, [reduced, earlier, f"with torch {self.torch}" if self.torch else ""]))


Keys = tuple[str, ...]
Results = dict[Keys, Ours]


def settings(
    table: PaperTable, rows: pd.DataFrame, configs: Mapping[Keys, set[str]]
) -> dict[Keys, list[Ours]]:
    """Return our numbers by the cells' keys, one for each setting: first the one that counts.

    ``configs`` are the current hashes of the cells' configurations; without them, none counts as earlier.
    Numbers of an earlier configuration are left out if there are others.
    """
    by_cell: dict[Keys, list[Ours]] = {}
    if rows.empty:
        return by_cell
    for values, own in rows.groupby(list(table.keys), sort=False):
        keys = tuple(map(str, values))
        now = configs.get(keys, set())
        own = own.assign(
            earlier=~own.config.isin(now) & bool(now) & (own.changes == ""),
            rounds=own.rounds.astype(int),
            departs=own.changes != "",
        )
        own = own[own.earlier == own.earlier.all()]
        ordered = own.sort_values(["departs", "rounds"], ascending=[True, False], kind="stable")
        by_cell[keys] = [
            Ours(
                _by_seed(same),
                str(changes),
                bool(own.earlier.all()),
                table.seeded,
                _others(rows, same),
                frozenset(same.config),
            )
            for changes, same in ordered.groupby("changes", sort=False)
        ]
    return by_cell


def _by_seed(rows: pd.DataFrame) -> dict[int, float]:
    return dict(zip(rows.seed.astype(int), rows.value.astype(float), strict=True))


def _others(rows: pd.DataFrame, own: pd.DataFrame) -> str:
    """Return the versions of torch in ``own`` rows that differ from that of most rows."""
    if "torch" not in rows:
        return ""
    usual = rows.torch.mode().iloc[-1]  # of equally frequent ones, the last
    return " and ".join(sorted(set(own.torch) - {usual}))


def configs(table: PaperTable, rows: pd.DataFrame) -> dict[Keys, set[str]]:
    """Return the hashes of the cells' current configurations, with the seeds that have results.

    Only cells count for which ``rows`` hold results at the paper's setting.
    """
    hashes: dict[Keys, set[str]] = {}
    if rows.empty:
        return hashes
    seeds: dict[Keys, set[int]] = {}
    for *values, seed in rows[rows.changes == ""][[*table.keys, "seed"]].to_numpy():
        seeds.setdefault(tuple(values), set()).add(int(seed))
    for cell in table.cells():
        keys = tuple(cell.keys.values())
        for seed in seeds.get(keys, ()):
            hashes.setdefault(keys, set()).add(Variants(cell.overrides).config_hash(seed))
    return hashes


def ours(by_cell: Mapping[Keys, list[Ours]]) -> Results:
    """Return the number that counts for each cell."""
    return {keys: numbers[0] for keys, numbers in by_cell.items()}
