"""python -m baselines.reproduce PAPER TABLE: run a paper's table, and write our numbers beside the paper's.

List the papers and their tables:

    python -m baselines.reproduce

Run a part of a table, or a smaller setting; print the commands alone; run the most informative first:

    python -m baselines.reproduce weight_erosion table2 --where num_nodes=10
    python -m baselines.reproduce gma table4_4 --scale small
    python -m baselines.reproduce gma table4_4 --dry-run
    python -m baselines.reproduce gma table4_4 --budget 40m device=auto

Take the runs to another machine with --collect runs.tar; renew every page and figure:

    python -m baselines.reproduce gma table4_4 --export runs.tar
    python -m baselines.reproduce --overview

The results go to baselines/papers/PAPER/ours/TABLE.csv, .md and .png. Runs of --scale smoke only show that
everything works; their results go to OUTPUT/smoke.

Start it again to continue: finished runs are not repeated, and an interrupted run continues from its last
checkpoint.

A scale or an override changes the paper's setting. Its numbers are labelled, and a number of the paper's own
setting replaces them. Numbers of further settings have a table of their own.

Exit status: 0 when all is there; 1 when a run failed or lacks its data; 2 after a user's mistake, or where
no run has its data; 130 after Ctrl-C.
"""

import argparse
import sys
from pathlib import Path

from baselines.errors import UserError
from baselines.experiment.overrides import add_config_dir
from baselines.help import HelpParagraphs

SCALES = ("full", "small", "smoke")  # plan.py says what they change


def _parser() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    parser_of_all = argparse.ArgumentParser(
        prog="python -m baselines.reproduce",
        description=__doc__,
        formatter_class=HelpParagraphs,
    )
    add = parser_of_all.add_argument
    add("paper", nargs="?", help="a folder of baselines/papers")
    add("table", nargs="?", help="a table of its tables.yaml; without it the tables are listed")
    add("overrides", nargs="*", help="settings of every run; they label the results")
    add_config_dir(parser_of_all)
    add(
        "--where",
        action="append",
        default=[],
        metavar="KEY=VALUE,...",
        help="run only these cells; a key given twice takes both values",
    )
    add("--seeds", metavar="0,1,...", help="default: as many as the paper's, from 0")
    add("--scale", choices=SCALES, default="full", help="how much of the paper's setting; full: all")
    add("--jobs", metavar="N", default="1", help="runs at a time, of a thread each (1)")
    add("--budget", metavar="40m", help="stop after this time; the most informative runs come first")
    add("--html", type=Path, metavar="PAGE", help="write one HTML page, of a paper or of all")
    add(
        "--overview",
        action="store_true",
        help="renew every page and figure from the numbers that are there",
    )
    add("--output", default="outputs/reproduce", help="where the runs are kept")
    add("--rerun", action="store_true", help="run the chosen cells again")
    instead = parser_of_all.add_mutually_exclusive_group().add_argument
    instead("--dry-run", action="store_true", help="only print the commands of what is missing")
    instead("--collect-only", action="store_true", help="run nothing, only collect what is finished")
    instead("--collect", metavar="RUNS.TAR", help="run nothing, take in the runs of another machine")
    instead("--export", metavar="RUNS.TAR", help="run nothing, pack the finished runs for another machine")
    return parser_of_all


def main(arguments: list[str] | None = None) -> int:
    """Do what the command line asks for; return the exit status."""
    options = _parser().parse_intermixed_args(arguments)
    try:
        from .command import reproduce  # pandas and torch take seconds

        return reproduce(options)
    except (UserError, OSError) as error:  # OSError: where nothing can be written
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        goes_on = "runs the finished ones again too" if options.rerun else "continues"
        print(f"interrupted: the same command {goes_on}", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
