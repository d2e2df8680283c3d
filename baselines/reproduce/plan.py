"""Plan the runs for the cells of a table, at a scale.

``--scale`` reduces every table by the same rule:

======  ==========================================  =====================  ===============
scale   rounds                                      local steps in a round  seeds
======  ==========================================  =====================  ===============
full    the paper's                                 the paper's            as many as asked
small   a fifth of the paper's, at least 10         the paper's            at most 2
smoke   2                                           2                      1
======  ==========================================  =====================  ===============

Never more than the paper's. A trial's ``changes`` are its departures from the paper's setting, by a scale
or by the user's overrides; they accompany its number everywhere. Where and how a trial is run (``WHERE``)
is not part of its setting.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from baselines.errors import UserError
from baselines.experiment.identity import UNHASHED_SETTINGS, Variants
from baselines.experiment.overrides import quote

from . import paper_tables
from .paper_tables import Cell, PaperTable

CHECKPOINTS = 20  # in a run, roughly
WHERE = ("device", "threads", "runtime", "data_root", *UNHASHED_SETTINGS)


@dataclass(frozen=True)
class Scale:
    """How much of the paper's setting is run; see the module's docstring."""

    share: float = 1.0
    least_rounds: int = 1
    local_steps: int | None = None
    seeds: int | None = None

    def changes(self, setting: Variants) -> dict[str, int | None]:
        """Return {key: value} of the changed settings."""
        changed: dict[str, int | None] = {}
        rounds = max(self.least_rounds, round(self.share * setting.rounds))
        if rounds < setting.rounds:
            changed["rounds"] = rounds
        steps = setting.local_steps
        if self.local_steps is not None and (steps is None or steps > self.local_steps):
            changed |= {"client.local_epochs": None, "client.local_steps": self.local_steps}
        return changed


SCALES = {
    "full": Scale(),
    "small": Scale(share=0.2, least_rounds=10, seeds=2),
    "smoke": Scale(share=0.0, least_rounds=2, local_steps=2, seeds=1),
}


@dataclass(frozen=True)
class Trial:
    """One seed of one cell.

    Parameters
    ----------
    cell, seed : its cell and seed
    changes : overrides in which it departs from the paper's setting; empty for the paper's own
    overrides : all overrides of ``baselines.run``, except where to write
    rounds : how many
    config : hash of the configuration, the same on every machine
    folder : of the run, named by its identity
    """

    cell: Cell
    seed: int
    changes: str
    overrides: tuple[str, ...]
    rounds: int
    config: str
    folder: Path

    @property
    def arguments(self) -> list[str]:
        """The arguments of ``python -m baselines.run``."""
        every = max(1, self.rounds // CHECKPOINTS)
        keeping = [
            f"hydra.run.dir={quote(str(self.folder))}",
            "resume=true",
            f"checkpoint_every={every}",
        ]
        return [*self.overrides, *keeping]

    @property
    def command(self) -> str:
        """The command as a line for a shell."""
        return f"OMP_NUM_THREADS=1 python -m baselines.run {shlex.join(self.arguments)}"

    @property
    def label(self) -> str:
        """The cell and the seed, for a reader."""
        return " ".join([*self.cell.keys.values(), f"seed {self.seed}"])


def table_of(paper: str, name: str) -> PaperTable:
    """Return a paper's table; raise ``UserError`` if it does not exist."""
    tables = paper_tables.tables(paper)
    if name not in tables:
        raise UserError(f"no table {name!r} of {paper}: expected one of {', '.join(tables)}")
    return tables[name]


def select(table: PaperTable, where: str) -> list[Cell]:
    """Return the cells that agree with ``key=value,...``; a key given twice allows both values.

    Raises
    ------
    UserError : for an unknown key or value, and when no cell agrees
    """
    condition: dict[str, list[str]] = {}
    for pair in filter(None, where.split(",")):
        key, _, value = pair.partition("=")
        if value not in table.keys.get(key, {}):
            known = "; ".join(f"{column} {', '.join(values)}" for column, values in table.keys.items())
            raise UserError(f"--where {pair}: {table.name} has {known}; a key given twice allows both")
        condition.setdefault(key, []).append(value)
    cells = [cell for cell in table.cells() if paper_tables.agrees(cell.keys, condition)]
    if not cells:
        raise UserError(f"--where {where}: it matches no cell of {table.name}")
    return cells


def plan(
    table: PaperTable,
    chosen: Sequence[Cell],
    seeds: Sequence[int],
    scale: str,
    extra: Sequence[str],
    output: Path,
) -> list[Trial]:
    """Return the trials of the chosen cells, cell by cell.

    Parameters
    ----------
    extra : the user's overrides, for every run
    output : the folder of the run folders
    """
    seeds = seeds[: SCALES[scale].seeds]
    return [
        trial
        for cell in chosen
        for trial in _trials(cell, seeds, SCALES[scale], extra, output / table.paper)
    ]


def _trials(
    cell: Cell, seeds: Sequence[int], scale: Scale, extra: Sequence[str], folder: Path
) -> Iterator[Trial]:
    overrides = [*cell.overrides, *extra]
    departing = [override for override in extra if not says_where(override)]
    try:
        run, setting = Variants(overrides), Variants([*cell.overrides, *departing])
    except UserError as error:  # a user's override that not all cells take
        raise UserError(f"{' '.join(cell.keys.values())}: {error}") from error
    if departing and setting.config_hash() == Variants(cell.overrides).config_hash():
        departing = []  # they change nothing
    reduced = scale.changes(run)
    changes = [*departing, *_overrides(reduced)]
    run.change(reduced)
    setting.change(reduced)
    for seed in seeds:
        yield Trial(
            cell,
            seed,
            shlex.join(changes),
            (*overrides, *_overrides(reduced), f"seed={seed}"),
            run.rounds,
            setting.config_hash(seed),
            folder / run.identity(seed),
        )


def says_where(override: str) -> bool:
    """Say whether an override decides only where or how a trial is run."""
    return override.lstrip("+").partition("=")[0].partition(".")[0] in WHERE


def _overrides(values: Mapping[str, int | None]) -> list[str]:
    return [f"{key}={'null' if value is None else value}" for key, value in values.items()]
