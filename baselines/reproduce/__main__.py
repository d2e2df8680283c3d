"""python -m baselines.reproduce PAPER TABLE: run what is missing of a paper's table, write ours beside it.

    python -m baselines.reproduce weight_erosion table2 --where num_nodes=10 --seeds 0,1 --jobs 2
    python -m baselines.reproduce gma table4_4 --scale small dataset.load.augment=null
    python -m baselines.reproduce gma table4_4 --dry-run
    python -m baselines.reproduce                                # which papers and tables there are

Killed and started again it continues: what is finished is not run twice, and a run under way goes on from
its last checkpoint. The results go to baselines/papers/PAPER/ours/TABLE.csv, .md and .png; those of
--scale smoke, which only show that everything works, to OUTPUT/smoke. A number of another setting than the
paper's, by a scale or by overrides, is labelled wherever it stands and gives way to one of the paper's;
those of further settings have a table of their own.

Exit status: 0 when all is there, 1 when a run failed, 2 after a user's mistake, 130 after Ctrl-C.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from filelock import FileLock
from rich.console import Console

from baselines.engine.run_folder import LOCK
from baselines.errors import UserError

from . import collect, numbers, overview, paper_tables, report, scoreboard
from .display import Display
from .estimate import Calibration, told
from .paper_tables import PaperTable
from .plan import SCALES, Trial, plan, select, table_of
from .running import Running


def main(arguments: list[str] | None = None) -> int:
    """Do what the command line asks for; return the exit status."""
    options = _parser().parse_intermixed_args(arguments)
    try:
        return _reproduce(options)
    except (UserError, OSError) as error:  # OSError: where nothing can be written
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        goes_on = "runs the finished ones again too" if options.rerun else "continues"
        print(f"interrupted: the same command {goes_on}", file=sys.stderr)
        return 130


def _reproduce(options: argparse.Namespace) -> int:
    out = Console(soft_wrap=True, highlight=False, markup=False)
    if options.jobs < 1:
        raise UserError(f"--jobs {options.jobs}: expected 1 or more runs at a time")
    if given := [override for override in options.overrides if override.startswith("seed=")]:
        raise UserError(f"{given[0]}: a table's seeds are chosen with --seeds")
    if options.table is None:
        overview.show([options.paper] if options.paper else paper_tables.papers(), out)
        return 0
    table = table_of(options.paper, options.table)
    chosen = select(table, ",".join(options.where))
    seeds = _seeds(options.seeds) if options.seeds else range(table.seeds)
    output = Path(options.output)
    smoke = options.scale == "smoke"
    folder = output / "smoke" / table.paper if smoke else paper_tables.PAPERS / table.paper / "ours"
    there = collect.read(folder / f"{table.name}.csv")
    shown = plan(table, chosen, _with(seeds, there), options.scale, options.overrides, output)
    trials = [trial for trial in shown if trial.seed in seeds]
    known = collect.known(trials, there)
    done = {t.folder.name for t in trials if t.folder.name in known or collect.is_finished(t)}
    missing = trials if options.rerun else [t for t in trials if t.folder.name not in done]
    if options.dry_run:
        return _show(missing, out)
    failed: list[tuple[Trial, str]] = []
    try:
        if missing and not options.collect_only:
            _announce(table, trials, missing, options.jobs, out)
            if options.rerun:
                collect.forget(missing)
            running = Running(options.jobs, collect.is_finished, Display(missing, out))
            failed = running.failed
            running.run(missing)
    finally:
        _write(table, shown, options.scale, folder, out)
    for trial, reason in failed:
        out.print(f"failed: {trial.label}: {reason}\n  {trial.command}")
    return 1 if failed else 0


def _with(seeds: Sequence[int], rows: pd.DataFrame) -> list[int]:
    """Return the seeds, and those that there are results of: a table shows them all."""
    others = [] if rows.empty else rows.seed.astype(int).tolist()
    return list(dict.fromkeys([*seeds, *others]))


def _write(table: PaperTable, trials: Sequence[Trial], scale: str, folder: Path, out: Console) -> None:
    """Write all that is finished of these trials, with what was there before."""
    from . import picture  # matplotlib takes a second

    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / LOCK):  # another process may have run other cells of it
        rows = collect.collect(table, trials, scale, folder)
        found = numbers.settings(table, rows, numbers.configs(table, rows))
        results = numbers.ours(found)
        page = report.write(table, found, folder)
        drawn = picture.draw(table, results, collect.read(folder / f"{table.name}_curves.csv"), folder)
    if folder == paper_tables.PAPERS / table.paper / "ours":
        scoreboard.write([table.paper])
    out.print(f"{len(results)} of {len(table.cells())} cells: {page}")
    if drawn:
        out.print(f"figure: {drawn}")


def _show(missing: Sequence[Trial], out: Console) -> int:
    if not missing:
        out.print("# no run is missing; --rerun shows the commands of finished ones")
    for trial in missing:
        out.print(
            f"# {trial.label}" + (f"; not the paper's setting: {trial.changes}" * bool(trial.changes))
        )
        out.print(trial.command)
    return 0


def _announce(
    table: PaperTable, trials: Sequence[Trial], missing: Sequence[Trial], jobs: int, out: Console
) -> None:
    """Say what will run and how long it takes, learnt from a few steps."""
    count = f"{len(missing)} of {len(trials)} runs are missing"
    changed = sorted({trial.changes for trial in missing if trial.changes})
    note = f"; not the paper's setting: {' | '.join(changed)}" if changed else ""
    try:
        seconds = Calibration().seconds(missing) / jobs
    except UserError as error:
        out.print(f"{table.paper} {table.name}: {count}{note}; time unknown: {error}")
        return
    out.print(f"{table.paper} {table.name}: {count}{note}; about {told(seconds)} with --jobs {jobs}")


def _seeds(text: str) -> list[int]:
    seeds = text.split(",")
    if not all(seed.strip().isdecimal() for seed in seeds):
        raise UserError(f"--seeds {text}: expected whole numbers, such as 0,1,2")
    return list(dict.fromkeys(map(int, seeds)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m baselines.reproduce",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("paper", nargs="?", help="a folder of baselines/papers")
    parser.add_argument(
        "table", nargs="?", help="a table of its tables.yaml; without it the tables are listed"
    )
    parser.add_argument("overrides", nargs="*", help="for every run; the results are labelled with them")
    parser.add_argument(
        "--where", action="append", default=[], metavar="KEY=VALUE,...", help="cells to run"
    )
    parser.add_argument("--seeds", metavar="0,1,...", help="default: as many as the paper has, from 0")
    parser.add_argument("--scale", choices=SCALES, default="full", help="see baselines/reproduce/plan.py")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="runs at a time, of a thread each")
    parser.add_argument("--output", default="outputs/reproduce", help="where the runs are kept")
    parser.add_argument("--dry-run", action="store_true", help="only print the commands of what is missing")
    parser.add_argument(
        "--collect-only", action="store_true", help="run nothing, only collect what is finished"
    )
    parser.add_argument("--rerun", action="store_true", help="run the chosen cells again")
    return parser


if __name__ == "__main__":
    sys.exit(main())
