"""The command ``python -m baselines.reproduce``: plan, run, collect and write a paper's table."""

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from filelock import FileLock
from rich.console import Console

from baselines.engine.run_folder import LOCK
from baselines.errors import UserError
from baselines.experiment.overrides import with_config_dir

from . import paper_tables, transfer
from . import results as collect
from .campaign import fill, seconds_in, with_available_data
from .claims import show_overview
from .page import write_pages, write_table, write_tables
from .paper_tables import PaperTable
from .plan import Trial, plan, select, table_of
from .report import write_page


def reproduce(options: argparse.Namespace) -> int:
    """Run the command line's request; return the exit status."""
    out = Console(soft_wrap=True, highlight=False, markup=False)
    options.overrides = with_config_dir(options.config_dir, options.overrides)
    _check(options)
    if options.table is None:
        return _show_papers(options, out)
    table = table_of(options.paper, options.table)
    seeds = _seeds(options.seeds) if options.seeds else range(table.seeds)
    output = Path(options.output)
    smoke = options.scale == "smoke"
    folder = output / "smoke" / table.paper if smoke else paper_tables.PAPERS / table.paper / "ours"
    rows = collect.read(folder / f"{table.name}.csv")
    if options.collect:
        return _take_in(options, table, folder, rows, out)
    chosen = select(table, ",".join(options.where))
    planned = plan(table, chosen, _with(seeds, rows), options.scale, options.overrides, output)
    if options.export:
        count = transfer.export(table, [t for t in planned if collect.has_ended(t)], Path(options.export))
        out.print(f"{count} runs: {options.export}")
        return 0
    trials = [trial for trial in planned if trial.seed in seeds]
    known = collect.known_trials(trials, rows, any_version=bool(options.budget))
    done = {t.folder.name for t in trials if t.folder.name in known or collect.is_finished(t)}
    missing = trials if options.rerun else [t for t in trials if t.folder.name not in done]
    if options.dry_run:
        return _show(missing, out)
    for line in collect.find_damaged(planned):
        out.print(line)
    trials_to_run = [] if options.collect_only else missing
    able = with_available_data(trials_to_run, out)
    try:
        failed = fill(options, table, trials, able, out) if able else []
    finally:
        _write(table, planned, options.scale, folder, out)
    for trial, reason in failed:
        out.print(f"failed: {trial.label}: {reason}\n  {trial.command}")
    return 1 if failed or len(able) < len(trials_to_run) else 0


def _show_papers(options: argparse.Namespace, out: Console) -> int:
    papers = [options.paper] if options.paper else paper_tables.papers()
    if options.overview:
        for page in (*write_tables(papers), *write_pages(papers)):
            out.print(f"page: {page}")
    elif options.html:
        write_page(papers, options.html)
        out.print(f"page: {options.html}")
    else:
        show_overview(papers, out)
    return 0


def _check(options: argparse.Namespace) -> None:
    if not (options.jobs.isdecimal() and int(options.jobs)):
        raise UserError(f"--jobs {options.jobs}: expected 1 or more runs at a time")
    if seeds := [override for override in options.overrides if override.startswith("seed=")]:
        raise UserError(f"{seeds[0]}: a table's seeds are chosen with --seeds")
    if options.html and options.table:
        raise UserError(f"--html {options.html}: the page is of a whole paper; leave {options.table} out")
    if options.overview and options.table:
        raise UserError(f"--overview is of whole papers: leave {options.table} out")
    if options.budget:
        seconds_in(options.budget)
    for name in ("budget", "collect", "export"):
        if getattr(options, name) and options.table is None:
            raise UserError(f"--{name} {getattr(options, name)}: name a paper and one of its tables")


def _take_in(
    options: argparse.Namespace, table: PaperTable, folder: Path, rows: pd.DataFrame, out: Console
) -> int:
    """Add another machine's runs to the table; existing ones are kept."""
    source = transfer.unpack_archive(table, Path(options.collect))
    try:
        count, output = len(list(source.iterdir())), Path(options.output)
        chosen, seeds = select(table, ",".join(options.where)), transfer.seeds_in(source)
        trials = plan(table, chosen, seeds, options.scale, options.overrides, output)
        known = collect.known_trials(trials, rows, any_version=True)
        new = [trial for trial in trials if trial.folder.name not in known]
        taken = list(transfer.import_runs(new, source, output / table.paper))
    finally:
        shutil.rmtree(source)
    rest = count - len({trial.folder for trial in taken})
    out.print(
        f"{count - rest} runs taken in"
        + f"; {rest} left out: here already, damaged, or of other cells or settings" * bool(rest)
    )
    _write(table, taken, options.scale, folder, out)
    return 0


def _with(seeds: Sequence[int], rows: pd.DataFrame) -> list[int]:
    """Return the seeds, and those with results, since a table shows all of them."""
    others = [] if rows.empty else rows.seed.astype(int).tolist()
    return list(dict.fromkeys([*seeds, *others]))


def _write(table: PaperTable, trials: Sequence[Trial], scale: str, folder: Path, out: Console) -> None:
    """Write the results of finished trials, together with earlier results."""
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / LOCK):  # another process may be writing other cells
        collect.collect(table, trials, scale, folder)
        page, drawn = write_table(table, folder)
        rows = collect.read(folder / f"{table.name}.csv")
    run = {tuple(keys) for keys in rows[list(table.keys)].to_numpy()} if not rows.empty else set()
    out.print(f"{len(run)} of {len(table.cells())} cells: {page}")
    if drawn:
        out.print(f"figure: {drawn}")
    if folder == paper_tables.PAPERS / table.paper / "ours":
        write_pages([table.paper])


def _show(missing: Sequence[Trial], out: Console) -> int:
    if not missing:
        out.print("# no run is missing; --rerun shows the commands of finished ones")
    for trial in missing:
        out.print(
            f"# {trial.label}" + (f"; not the paper's setting: {trial.changes}" * bool(trial.changes))
        )
        out.print(trial.command)
    return 0


def _seeds(text: str) -> list[int]:
    seeds = text.split(",")
    if not all(seed.strip().isdecimal() for seed in seeds):
        raise UserError(f"--seeds {text}: expected whole numbers, such as 0,1,2")
    return list(dict.fromkeys(map(int, seeds)))
