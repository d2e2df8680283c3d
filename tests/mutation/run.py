"""scripts/mutate: do the fast tests notice a changed operator, condition or number?

A sample of all mutants of strategies/ and clients/, drawn by a seed. Each is tried on the tests of its own
folder that run the changed statement (known from their coverage), until one fails.
"""

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import yaml
from mutants import Change, Mutant, changes, made
from trials import Tests, TestsFail, trial, warm_up

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("strategies", "clients")
SPARED = Path(__file__).with_name("spared.yaml")
ENOUGH = 0.9  # of the mutants must die


def main() -> int:
    """Return 1 where too few mutants die, 2 where the tests fail without one."""
    asked = _arguments()
    cache = ROOT / ".venv-mutate"
    try:
        tests = {folder: Tests(ROOT, folder, cache) for folder in FOLDERS}
    except TestsFail as error:
        print(error, file=sys.stderr)
        return 2
    warm_up([each.folder for each in tests.values()])
    survivors: list[Mutant] = []
    tried: Counter[str] = Counter()
    started = time.monotonic()
    for mutant in _sample(asked):
        folder = mutant.file.split("/")[0]
        touching = tests[folder].of(mutant)
        found = trial(ROOT, mutant, touching) if touching else "survived"
        tried[folder] += 1
        print(f"{sum(tried.values()):3} {found} (of {len(touching)} tests) {mutant}", flush=True)
        if found == "survived":
            survivors.append(mutant)
    return _verdict(survivors, tried, time.monotonic() - started)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/mutate", description=__doc__)
    parser.add_argument("--count", type=int, default=90, help="how many mutants (default: 90)")
    parser.add_argument("--seed", type=int, default=0, help="which ones (default: 0)")
    parser.add_argument(
        "--only", default="", metavar="PATH", help="of files whose path contains this alone"
    )
    asked = parser.parse_args()
    if asked.count < 1:
        parser.error(f"--count={asked.count}: expected 1 or more")
    return asked


def _sample(asked: argparse.Namespace) -> Iterator[Mutant]:
    """Yield so many mutants in the order that the seed gives, without those that are spared."""
    found: list[Change] = []
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if asked.only in (file := path.relative_to(ROOT).as_posix()):
                found += changes(ROOT, file)
    random.Random(asked.seed).shuffle(found)
    spared = {
        (each["file"], each["line"], each["mutation"]) for each in yaml.safe_load(SPARED.read_text()) or ()
    }
    left = asked.count
    for change in found:
        mutant = made(change) if left else None
        if mutant is not None and (mutant.file, mutant.before, mutant.after) not in spared:
            left -= 1
            yield mutant


def _verdict(survivors: list[Mutant], tried: Counter[str], seconds: float) -> int:
    for mutant in survivors:
        print(f"\n--- a/{mutant.file}\n+++ b/{mutant.file}\n@@ line {mutant.number} @@")
        print(f"-{mutant.before}\n+{mutant.after}")
    total = sum(tried.values())
    dead = total - len(survivors)
    where = ", ".join(f"{count} in {folder}/" for folder, count in sorted(tried.items()))
    print(f"\n{total} mutants ({where}): {dead} killed, {len(survivors)} survived, {seconds:.0f} s")
    return 0 if total and dead >= ENOUGH * total else 1


if __name__ == "__main__":
    sys.exit(main())
