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
from collections.abc import Iterator
from pathlib import Path

import torch
from rich.console import Console

from . import gpu_checks, gpu_table, machine, on_device, report
from .gpu_table import Check

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
        **machine.describe(),
        "sizes": "small" if options.small else "full",
        "took": f"{time.monotonic() - began:.0f} s",
    }
    gpu_table.write(checks, described, options.output / "gpu.md")
    wide = out if out.is_terminal else Console(width=160)
    title = (
        f"{described['gpu']}, torch {torch.__version__}{', sizes too small for the goals' * options.small}"
    )
    wide.print(gpu_table.terminal(checks, title))
    out.print(f"{gpu_table.summary(checks)}; written: {options.output / 'gpu.md'}")
    return int(any(check.verdict in ("no", "not seen") for check in checks))


def _tests(options: argparse.Namespace, deadline: float, out: Console) -> Iterator[Check]:
    for file in gpu_checks.files():
        out.print(f"{file} ...")
        left = max(1.0, deadline - time.monotonic())
        yield from gpu_checks.run(file, options.output / f"{file.stem}.log", left)


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
