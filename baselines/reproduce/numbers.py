"""Our number for a cell, out of the rows that there are of it.

Of a cell's rows those at the paper's own setting count; where there are none, those that depart from it in
the same way and have the most rounds, and the departure is printed with them. What was measured in further
settings is kept apart.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean

import pandas as pd

from baselines.experiment.variants import Variants

from .paper_tables import PaperTable


@dataclass(frozen=True)
class Ours:
    """Our number for one cell.

    Parameters
    ----------
    by_seed : the value of each seed
    changes : in what it departs from the paper's setting; empty where it does not
    earlier : whether it was measured under a configuration that the cell no longer has
    seeded : whether the seed decides anything
    torch : the version that computed them, where it is not that of most of the table
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
        """The standard deviation over the seeds; None of a single one."""
        return float(pd.Series(self.by_seed).std()) if len(self.by_seed) > 1 else None

    @property
    def note(self) -> str:
        """What a reader must be told beside the number."""
        reduced = f"not the paper's setting: {self.changes}" if self.changes else ""
        earlier = "of an earlier configuration" if self.earlier else ""
        return "; ".join(filter(None, [reduced, earlier, f"with torch {self.torch}" if self.torch else ""]))


Keys = tuple[str, ...]
Results = dict[Keys, Ours]


def settings(
    table: PaperTable, rows: pd.DataFrame, configs: Mapping[Keys, set[str]]
) -> dict[Keys, list[Ours]]:
    """Return our numbers by the values of the cells' keys, for each setting one: first the one that counts.

    ``configs`` are the hashes of the configurations that a cell has now; empty where that is not asked.
    Numbers of an earlier configuration are left out where there are others.
    """
    found: dict[Keys, list[Ours]] = {}
    if rows.empty:
        return found
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
        found[keys] = [
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
    return found


def _by_seed(rows: pd.DataFrame) -> dict[int, float]:
    return dict(zip(rows.seed.astype(int), rows.value.astype(float), strict=True))


def _others(rows: pd.DataFrame, own: pd.DataFrame) -> str:
    """Return the versions of torch among ``own`` rows that are not the one of most of all rows."""
    if "torch" not in rows:
        return ""
    usual = rows.torch.mode().iloc[-1]  # of as many, the last
    return " and ".join(sorted(set(own.torch) - {usual}))


def configs(table: PaperTable, rows: pd.DataFrame) -> dict[Keys, set[str]]:
    """Return the hashes of the configurations that the cells have now, each with the seeds that it has.

    Of those cells of which ``rows``, results of ours, hold some at the paper's setting.
    """
    found: dict[Keys, set[str]] = {}
    if rows.empty:
        return found
    seeds: dict[Keys, set[int]] = {}
    for *values, seed in rows[rows.changes == ""][[*table.keys, "seed"]].to_numpy():
        seeds.setdefault(tuple(values), set()).add(int(seed))
    for cell in table.cells():
        keys = tuple(cell.keys.values())
        for seed in seeds.get(keys, ()):
            found.setdefault(keys, set()).add(Variants(cell.overrides).config_hash(seed))
    return found


def ours(found: Mapping[Keys, list[Ours]]) -> Results:
    """Return of each cell the number that counts."""
    return {keys: numbers[0] for keys, numbers in found.items()}
