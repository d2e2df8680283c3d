"""scripts/mutate: do the tests notice a changed operator, condition or number?

A sample of all mutants of strategies/ and clients/, drawn by a seed, of which each of their folders has its
share. Each is tried on the tests of tests/strategies or tests/clients that run the changed statement (known
from their coverage), until one fails. It is dead only where that test passes without the change.
"""

import argparse
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import yaml

from helpers.checkout import ROOT
from helpers.mutation.mutants import Change, Mutant, changes, made
from helpers.mutation.sample import FOLDERS, dealt, files
from helpers.mutation.trials import Tests, TestsFail, verdict, warm_up

SPARED = ROOT / "tests" / "mutation" / "spared.yaml"
ENOUGH = 0.9  # of the mutants must die


def main() -> int:
    """Return 1 where too few mutants die, 2 where the tests fail without one."""
    options = _arguments()
    cache = ROOT / ".venv-mutate"
    mutants, spared = _sample(options)
    survivors: list[Mutant] = []
    started = time.monotonic()
    try:
        tests = {folder: Tests(ROOT, folder, cache) for folder in FOLDERS}
        warm_up(ROOT, [each.folder for each in tests.values()])
        touching = [tests[mutant.file.split("/")[0]].of(mutant) for mutant in mutants]
        with ThreadPoolExecutor(options.jobs) as pool:  # each waits for a process
            verdicts = pool.map(partial(verdict, ROOT), mutants, touching)
            for number, (mutant, end) in enumerate(zip(mutants, verdicts, strict=True), 1):
                print(f"{number:3} {end} (of {len(touching[number - 1])} tests) {mutant}", flush=True)
                if end == "survived":
                    survivors.append(mutant)
    except TestsFail as error:
        print(error, file=sys.stderr)
        return 2
    for mutant in survivors:
        print(f"\n--- a/{mutant.file}\n+++ b/{mutant.file}\n@@ line {mutant.number} @@")
        print(f"-{mutant.before}\n+{mutant.after}")
    folders = Counter(Path(mutant.file).parent.as_posix() for mutant in mutants)
    where = ", ".join(f"{count} in {folder}/" for folder, count in sorted(folders.items()))
    total, dead = len(mutants), len(mutants) - len(survivors)
    print(f"\n{total} mutants ({where}): {dead} killed, {len(survivors)} survived;", end=" ")
    print(f"{spared} more were spared; {time.monotonic() - started:.0f} s")
    return 0 if total and dead >= ENOUGH * total else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/mutate", description=__doc__)
    parser.add_argument("--count", type=int, default=90, help="how many mutants (default: 90)")
    parser.add_argument("--seed", type=int, default=0, help="which ones (default: 0)")
    parser.add_argument("--jobs", type=int, default=1, help="how many at a time (default: 1)")
    parser.add_argument(
        "--only", default="", metavar="PATH", help="of files whose path contains this alone"
    )
    options = parser.parse_args()
    for name in ("count", "jobs"):
        if (value := getattr(options, name)) < 1:
            parser.error(f"--{name}={value}: expected 1 or more")
    return options


def _sample(options: argparse.Namespace) -> tuple[list[Mutant], int]:
    """Return so many mutants in the order that the seed gives, and how many were spared among them."""
    groups: dict[Path, list[Change]] = {}
    for file in files():
        if options.only in file and (mutants_of_file := list(changes(ROOT, file))):
            groups.setdefault(Path(file).parent, []).extend(mutants_of_file)
    of = list(groups.values())
    listed = yaml.safe_load(SPARED.read_text(encoding="utf-8"))
    spared = {(each["file"], each["line"], each["mutation"]) for each in listed}
    mutants: list[Mutant] = []
    passed_over = 0
    for group, item in dealt([len(each) for each in of], options.seed):
        if len(mutants) == options.count:
            break
        mutant = made(of[group][item])
        if mutant is not None and (mutant.file, mutant.before, mutant.after) in spared:
            passed_over += 1
        elif mutant is not None:
            mutants.append(mutant)
    return mutants, passed_over


if __name__ == "__main__":
    sys.exit(main())
