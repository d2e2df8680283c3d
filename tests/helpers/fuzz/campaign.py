"""scripts/fuzz: random input to every command, each try judged, counts and failures printed.

    scripts/fuzz                               # 5,000 configurations, and of the other kinds in proportion
    scripts/fuzz --count 200 --seed 7
    scripts/fuzz --kind damaged --only 31      # one try again

Exit status: 0 when every try ended as promised, else 1.
"""

import argparse
import os
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from random import Random

from helpers.checkout import ROOT
from helpers.fuzz import (
    arguments,
    configurations,
    damaged_data,
    damaged_runs,
    explicit_settings,
    hostile_replies,
)
from helpers.fuzz.verdict import Result

Try = Callable[[Random, Path, str], Result]
KINDS: dict[str, tuple[Try, float]] = {  # and how many for each configuration
    "configurations": (configurations.try_one, 1),
    "explicit": (explicit_settings.try_one, 0.2),
    "damaged": (damaged_runs.try_one, 0.2),
    "data": (damaged_data.try_one, 0.2),
    "arguments": (arguments.try_one, 0.1),
    "hostile": (hostile_replies.try_one, 0.4),
}
PAGE = ROOT / "docs" / "development" / "reliability.md"
BEGIN, END = "<!-- counts: written by scripts/fuzz --write -->", "<!-- end of counts -->"


def main() -> int:
    """Try everything; return the exit status."""
    options = _parser().parse_args()
    kinds = [options.kind] if options.kind else [*KINDS]
    counts: dict[str, Counter[str]] = {kind: Counter() for kind in kinds}
    failures: Counter[str] = Counter()
    for kind in kinds:
        count = max(1, round(options.count * KINDS[kind][1]))
        places = [options.only] if options.only is not None else range(count)
        for result in _results(kind, options.seed, places, options.jobs):
            counts[kind]["not as promised" if result.fault else result.outcome] += 1
            if result.fault:
                failures[_class_of(result.fault)] += 1
                print(f"{result.command}\n    {result.fault}", flush=True)
    for fault, times in failures.most_common():
        print(f"{times:5} {fault}")
    only = f" --kind {options.kind}" if options.kind else ""
    table = _table(counts, f"scripts/fuzz --count {options.count} --seed {options.seed}{only}")
    print(table)
    if options.write:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n{table}{END}{rest.partition(END)[2]}")
    return 1 if failures else 0


def attempt(kind: str, seed: int, place: int) -> Result:
    """Make one try of a kind, the same for the same seed and place."""
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    before = Path.cwd()
    try:
        os.chdir(folder)  # what a command writes by default goes there
        repeat = f"scripts/fuzz --kind {kind} --seed {seed} --only {place}"
        return KINDS[kind][0](Random(f"{kind} {seed} {place}"), folder, repeat)
    finally:
        os.chdir(before)
        shutil.rmtree(folder, ignore_errors=True)


def _results(kind: str, seed: int, places: range | list[int], jobs: int) -> Iterator[Result]:
    once = partial(attempt, kind, seed)
    if jobs == 1:
        yield from map(once, places)
        return
    context = get_context("spawn")  # fresh processes now and then: one has been given all kinds of things
    with context.Pool(jobs, maxtasksperchild=250) as pool:
        yield from pool.imap(once, places)


def _class_of(fault: str) -> str:
    """Return a fault without its numbers and names, to count it with its like."""
    return re.sub(r"\d+", "N", re.sub(r"'[^']*'|\"[^\"]*\"|\S*/\S*|\S+=\S*", "X", fault))[:110]


def _table(counts: dict[str, Counter[str]], command: str) -> str:
    lines = ["| what | how it ended | tries |", "| --- | --- | ---: |"]
    for kind, outcomes in counts.items():
        lines += [f"| {kind} | {outcome} | {times} |" for outcome, times in sorted(outcomes.items())]
        failed = outcomes["not as promised"]
        lines.append(f"| {kind} | **all**, of which not as promised: {failed} | **{outcomes.total()}** |")
    return "\n".join([*lines, "", f"`{command}`", ""])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--count",
        type=int,
        default=5000,
        help="configurations; a fifth as many explicit settings, damaged runs and data, a tenth command lines, "
        "two fifths replies",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2, help="processes (2)")
    parser.add_argument("--kind", choices=[*KINDS], help="only these")
    parser.add_argument("--only", type=int, metavar="PLACE", help="one try of --kind again")
    parser.add_argument(
        "--write", action="store_true", help=f"write the counts into docs/development/{PAGE.name}"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
