"""The tests that need a GPU, run file by file: a fault on the card spoils its process, and no other."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from baselines.experiment.places import ROOT

from .gpu_table import Check

MARK = "mark.gpu"
ENDED = re.compile(r"^(tests/\S+?::\w+)(\[.*\])? (PASSED|FAILED|ERROR|SKIPPED)\b")
SKIPPED = re.compile(r"^SKIPPED \[\d+\] .*?: (.*)$")
EXPECTED = "all pass"
ENDS = (0, 1)  # statuses of pytest when it came to its end
SHOWN = 3  # failures that are named


def files() -> list[Path]:
    """Return the files with such tests, below the root; read as text, since to import some needs Ray."""
    found = (ROOT / "tests").rglob("test_*.py")
    return sorted(path.relative_to(ROOT) for path in found if MARK in path.read_text(encoding="utf-8"))


def command(file: Path) -> list[str]:
    """Return the command that runs the marked tests of a file, a line for each."""
    options = [
        "-o",
        "addopts=--strict-markers",
        "-v",
        "-rs",
        "--color=no",
        "--tb=short",
        "-p",
        "no:cacheprovider",
    ]
    return [sys.executable, "-m", "pytest", "-m", "gpu", *options, str(file)]


def run(file: Path, log: Path, seconds: float) -> list[Check]:
    """Run a file's tests for at most so long; return a check for each test function."""
    with open(log, "w", encoding="utf-8") as out:
        try:
            status = subprocess.run(
                command(file), cwd=ROOT, stdout=out, stderr=subprocess.STDOUT, timeout=seconds, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            status = None
    return list(checks(file, log.read_text(encoding="utf-8", errors="replace"), status))


def checks(file: Path, told: str, status: int | None = 0) -> Iterator[Check]:
    """Yield what pytest's output says, test function by test function.

    Parameters
    ----------
    status : its exit status; None when it ran out of time
    """
    found: dict[str, dict[str, list[str]]] = {}
    for line in told.splitlines():
        if ended := ENDED.match(line):
            name, case, outcome = ended.groups(default="")
            found.setdefault(name, {}).setdefault(outcome, []).append(case)
    reasons = [reason[1] for line in told.splitlines() if (reason := SKIPPED.match(line))]
    for name, by_outcome in found.items():
        yield _check(name, by_outcome, reasons)
    last = next((line for line in reversed(told.splitlines()) if line.strip()), "no output")
    if status is None:
        yield Check(str(file), "out of time before its end", EXPECTED, None)
    elif not found:
        yield Check(str(file), f"did not run: {last}", EXPECTED, False)
    elif status not in ENDS:  # a fault that took the process with it
        yield Check(str(file), f"ended early with status {status}: {last}", EXPECTED, False)


def _check(name: str, by_outcome: dict[str, list[str]], reasons: list[str]) -> Check:
    count = sum(map(len, by_outcome.values()))
    passed, skipped = (len(by_outcome.get(outcome, [])) for outcome in ("PASSED", "SKIPPED"))
    failed = [*by_outcome.get("FAILED", []), *by_outcome.get("ERROR", [])]
    said = [f"{passed} of {count} pass"]
    if named := "; ".join(filter(None, failed[:SHOWN])):
        said.append(f"failed: {named}{', ...' if len(failed) > SHOWN else ''}")
    if skipped:
        said.append(f"{skipped} skipped: {reasons[0] if reasons else 'no reason given'}")
    holds = False if failed else None if skipped else True
    return Check(name.removeprefix("tests/"), "; ".join(said), EXPECTED, holds)
