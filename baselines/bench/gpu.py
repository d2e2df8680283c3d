"""scripts/test-gpu: what holds on one GPU, in one table; in ten minutes, without Ray or a network.

It runs the tests marked ``gpu``, among them that every way to compute a round agrees with a plain loop on
the card, and ``python -m baselines.bench --device cuda``. Each file of tests and each workload is a process
of its own, and none runs longer than there is time: what is not reached is "not seen". The table is also
written to gpu.md in --output, beside the logs.

Exit status: 0 when all holds, 1 when something does not or was not seen, 2 without a GPU.
"""

import argparse
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from baselines.experiment.overrides import ROOT
from baselines.reports.tables import markdown_table

from . import on_device, report
from .report import describe_machine

# What holds on a GPU and what does not: one table, on the terminal and as Markdown.


HEADINGS = ("what", "found", "expected", "holds")


@dataclass(frozen=True)
class Check:
    """One line of the table.

    Parameters
    ----------
    what : was looked at
    found : in words
    expected : in words; empty where nothing is, as of a time without a goal
    holds : whether it is as expected; None where that was not seen
    """

    what: str
    found: str
    expected: str
    holds: bool | None

    @property
    def verdict(self) -> str:
        """The last column."""
        if not self.expected:
            return ""
        return "not seen" if self.holds is None else "yes" if self.holds else "no"


def summarize_checks(checks: Sequence[Check]) -> str:
    """Return how many hold, do not, and were not seen."""
    verdicts = [check.verdict for check in checks]
    counts = [verdicts.count(verdict) for verdict in ("yes", "no", "not seen")]
    return f"{counts[0]} hold, {counts[1]} do not, {counts[2]} not seen"


def format_terminal(checks: Sequence[Check], title: str) -> Table:
    """Return the table for the terminal."""
    out = Table(title=title)
    for heading in HEADINGS:
        out.add_column(heading, overflow="fold")
    for check in checks:
        out.add_row(*_line(check), style="red" if check.verdict == "no" else None)
    return out


def write_checks(checks: Sequence[Check], machine: Mapping[str, object], target: Path) -> None:
    """Write the table, with the machine's description below it."""
    table = markdown_table(HEADINGS, map(_line, checks))
    told = "".join(f"- {key}: {value}\n" for key, value in machine.items())
    target.write_text(f"{table}\n{summarize_checks(checks)}\n\n{told}", encoding="utf-8")


def _line(check: Check) -> tuple[str, ...]:
    return check.what, check.found, check.expected, check.verdict


# The tests that need a GPU, run file by file: a fault on the card spoils its process, and no other.


MARK = "mark.gpu"
ENDED = re.compile(r"^(tests/\S+?::\w+)(\[.*\])? (PASSED|FAILED|ERROR|SKIPPED)\b")
SKIPPED = re.compile(r"^SKIPPED \[\d+\] .*?: (.*)$")
EXPECTED = "all pass"
ENDS = (0, 1)  # statuses of pytest when it came to its end
SHOWN = 3  # failures that are named


def find_test_files() -> list[Path]:
    """Return the files with such tests, below the root; read as text, since to import some needs Ray."""
    found = (ROOT / "tests").rglob("test_*.py")
    return sorted(path.relative_to(ROOT) for path in found if MARK in path.read_text(encoding="utf-8"))


def test_command(file: Path) -> list[str]:
    """Return the command that runs the marked tests of a file, a line for each."""
    options = [
        "-o",
        "addopts=--strict-markers --import-mode=importlib",
        "-v",
        "-rs",
        "--color=no",
        "--tb=short",
        "-p",
        "no:cacheprovider",
    ]
    return [sys.executable, "-m", "pytest", "-m", "gpu", *options, str(file)]


def run_tests(file: Path, log: Path, seconds: float) -> list[Check]:
    """Run a file's tests for at most so long; return a check for each test function."""
    with open(log, "w", encoding="utf-8") as out:
        try:
            status = subprocess.run(
                test_command(file),
                cwd=ROOT,
                stdout=out,
                stderr=subprocess.STDOUT,
                timeout=seconds,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            status = None
    return list(parse_checks(file, log.read_text(encoding="utf-8", errors="replace"), status))


def parse_checks(file: Path, told: str, status: int | None = 0) -> Iterator[Check]:
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
        yield _read_check(name, by_outcome, reasons)
    last = next((line for line in reversed(told.splitlines()) if line.strip()), "no output")
    if status is None:
        yield Check(str(file), "out of time before its end", EXPECTED, None)
    elif not found:
        yield Check(str(file), f"did not run: {last}", EXPECTED, False)
    elif status not in ENDS:  # a fault that took the process with it
        yield Check(str(file), f"ended early with status {status}: {last}", EXPECTED, False)


def _read_check(name: str, by_outcome: dict[str, list[str]], reasons: list[str]) -> Check:
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


TESTS = 0.5  # of the time, at most
JUDGED = re.compile(r": (not )?met")  # the last column says it


def main(arguments: list[str] | None = None) -> int:
    """Look at everything, print the table; return the exit status."""
    options = _parser().parse_args(arguments)
    if options.device == "cuda" and not torch.cuda.is_available():
        print(
            f"error: torch {torch.__version__} sees no GPU here: run this where there is one",
            file=sys.stderr,
        )
        return 2
    options.output.mkdir(parents=True, exist_ok=True)
    out = Console(highlight=False, markup=False, soft_wrap=True)
    began, seconds = time.monotonic(), 60 * options.minutes
    checks = list(_tests(options, began + TESTS * seconds, out))
    checks += _benchmark(options, began + seconds, out)
    described = {
        **describe_machine(),
        "sizes": "small" if options.small else "full",
        "took": f"{time.monotonic() - began:.0f} s",
    }
    write_checks(checks, described, options.output / "gpu.md")
    wide = out if out.is_terminal else Console(width=160)
    title = (
        f"{described['gpu']}, torch {torch.__version__}{', sizes too small for the goals' * options.small}"
    )
    wide.print(format_terminal(checks, title))
    out.print(f"{summarize_checks(checks)}; written: {options.output / 'gpu.md'}")
    return int(any(check.verdict in ("no", "not seen") for check in checks))


def _tests(options: argparse.Namespace, deadline: float, out: Console) -> Iterator[Check]:
    for file in find_test_files():
        out.print(f"{file} ...")
        left = max(1.0, deadline - time.monotonic())
        yield from run_tests(file, options.output / f"{file.stem}.log", left)


def _benchmark(options: argparse.Namespace, deadline: float, out: Console) -> Iterator[Check]:
    for workload in on_device.workloads(options.device, on_device.SMALL):  # for their names alone
        out.print(f"benchmark {workload.name} ...")
        yield from _measured(workload.name, options, deadline - time.monotonic())


def _measured(name: str, options: argparse.Namespace, seconds: float) -> list[Check]:
    """Measure one workload in a process of its own, for at most so long."""
    folder = options.output / name
    (folder / "benchmarks.csv").unlink(missing_ok=True)  # of an earlier time
    folder.mkdir(exist_ok=True)
    log = folder / "log.txt"
    with open(log, "w", encoding="utf-8") as told:
        try:
            process = subprocess.run(
                command(name, options, folder),
                stdout=told,
                stderr=subprocess.STDOUT,
                timeout=max(1.0, seconds),
                check=False,
            )
        except subprocess.TimeoutExpired:
            return [Check(name, "out of time", "measured", None)]
    rows = report.read(folder)
    if process.returncode or not rows:
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
        why = next((line for line in reversed(lines) if "Error" in line or "skipped" in line), f"see {log}")
        return [Check(name, why, "measured", False)]
    return [_check(line, rows) for line in report.lines(rows)]


def command(name: str, options: argparse.Namespace, folder: Path) -> list[str]:
    """Return the command that measures a workload."""
    small = ["--small"] if options.small else []
    told = ["--device", options.device, *small, "--repeats", str(options.repeats), "--output", str(folder)]
    return [sys.executable, "-m", "baselines.bench", name, *told]


def _check(line: tuple[str, ...], rows: list[report.Row]) -> Check:
    """Return the check of a contender's line: it holds where it meets all its goals."""
    workload, subject, quantity, value, beside, goal = line
    own = [row.met for row in rows if (row.workload, row.subject, row.quantity) == line[:3]]
    holds = all(met for met in own if met is not None)
    found = f"{value}; {beside}" if beside else value
    return Check(f"{workload}: {subject}, a {quantity}", found, JUDGED.sub("", goal), holds)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/test-gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda", help="of the benchmark: cuda, or cpu with --small")
    parser.add_argument("--small", action="store_true", help="tiny sizes, only to see that it works")
    parser.add_argument("--minutes", type=float, default=9.5, help="in which it ends (9.5)")
    parser.add_argument("--repeats", type=int, default=3, help="turns of each contender (3)")
    parser.add_argument(
        "--output", type=Path, default=Path("outputs/test-gpu"), help="folder (outputs/test-gpu)"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
