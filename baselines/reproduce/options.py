"""The arguments of ``python -m baselines.reproduce``."""

import argparse
from pathlib import Path

from baselines.experiment.overrides import add_config_dir

SCALES = ("full", "small", "smoke")  # plan.py says what they change


def parser(description: str) -> argparse.ArgumentParser:
    """Return what reads the command line."""
    parser_of_all = argparse.ArgumentParser(
        prog="python -m baselines.reproduce",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser_of_all.add_argument
    add("paper", nargs="?", help="a folder of baselines/papers")
    add("table", nargs="?", help="a table of its tables.yaml; without it the tables are listed")
    add("overrides", nargs="*", help="for every run; the results are labelled with them")
    add_config_dir(parser_of_all)
    add(
        "--where",
        action="append",
        default=[],
        metavar="KEY=VALUE,...",
        help="cells to run; twice the same key: both",
    )
    add("--seeds", metavar="0,1,...", help="default: as many as the paper's, from 0")
    add("--scale", choices=SCALES, default="full", help="how much of the paper's setting; full: all")
    add("--jobs", metavar="N", default="1", help="runs at a time, of a thread each (1)")
    add("--budget", metavar="40m", help="stop after this time; the most informative runs come first")
    add("--html", type=Path, metavar="PAGE", help="of a paper, or of all: one page for a browser")
    add(
        "--overview",
        action="store_true",
        help="renew every page and figure, the tables' own among them, from the numbers that there are",
    )
    add("--output", default="outputs/reproduce", help="where the runs are kept")
    add("--rerun", action="store_true", help="run the chosen cells again")
    instead = parser_of_all.add_mutually_exclusive_group().add_argument
    instead("--dry-run", action="store_true", help="only print the commands of what is missing")
    instead("--collect-only", action="store_true", help="run nothing, only collect what is finished")
    instead("--collect", metavar="RUNS.TAR", help="run nothing, take in the runs of another machine")
    instead("--export", metavar="RUNS.TAR", help="run nothing, pack the finished runs for another machine")
    return parser_of_all
