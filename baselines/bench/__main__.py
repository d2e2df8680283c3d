"""python -m baselines.bench [WORKLOAD...]: each workload beside its limit and its alternatives.

Prints a table, and writes benchmarks.csv and benchmarks.md (the same table with the machine's description).
Exit status: 0, 1 when a workload failed, 2 after a user's mistake. A workload whose data are not there is
skipped with a line.
"""

import argparse
import logging
import sys
import traceback
from pathlib import Path

from rich.console import Console

from baselines.errors import UserError

from . import on_device, report
from .checkpoint import Checkpoint
from .classification import MNIST, Classification
from .growth import Growth
from .on_ray import OnRay, Workers
from .plain import resnet_setting
from .report import Workload, describe_machine, machine_load
from .server_step import ServerStep
from .tiny import Tiny

LENET = f"{MNIST} model=lenet num_nodes=10"
MANY = f"{MNIST} num_nodes=100"
BATCHED: dict[str, tuple[str, float | None]] = {
    "inline, nodes together": ("runtime.batch_clients=true", None),
    "inline, nodes together, 2 threads": ("runtime.batch_clients=true threads=2", 0.35),
    "inline, one by one": ("runtime.batch_clients=false", None),
}
RECORDED = 12  # rounds; the first three take most of their steps before the step is recorded
CONVOLUTIONS: dict[str, tuple[str, float | None]] = {
    "inline, channels last": ("channels_last=true", None),
    "inline, bfloat16": ("autocast=bfloat16", None),
    "inline, bfloat16, channels last": ("autocast=bfloat16 channels_last=true", None),
}
WORKLOADS: tuple[Workload, ...] = (
    Tiny("tiny"),
    Classification("softmax", f"{MANY} model=softmax", BATCHED, RECORDED),
    Classification("mlp30", f"{MANY} model=mlp30", BATCHED, RECORDED),
    Classification("lenet", LENET, {"inline": ("", 1.1)} | CONVOLUTIONS),
    Workers("lenet-ray", LENET, 1.0),
    OnRay("on-ray", LENET),
    Classification("resnet", resnet_setting(steps=2), {"inline": ("", 1.05)} | CONVOLUTIONS, rounds=2),
    Growth("growth"),
    ServerStep("server-step"),
    Checkpoint("checkpoint", LENET),
)


def main(arguments: list[str] | None = None, workloads: tuple[Workload, ...] = WORKLOADS) -> int:
    """Measure the named workloads, or all; return the exit status."""
    options = _parser(workloads).parse_args(arguments)
    if options.device:
        workloads = on_device.workloads(
            options.device, on_device.SMALL if options.small else on_device.Sizes()
        )
    names = [workload.name for workload in workloads]
    if unknown := sorted(set(options.workloads) - set(names)):
        print(f"error: no workload {', '.join(unknown)}: choose from {', '.join(names)}", file=sys.stderr)
        return 2
    if options.small and not options.device:
        print("error: --small is for the workloads of --device: name one", file=sys.stderr)
        return 2
    if options.repeats < 1:
        print(f"error: --repeats={options.repeats} is out of range: expected 1 or more", file=sys.stderr)
        return 2
    logging.getLogger("flwr").setLevel(logging.WARNING)
    console = Console(highlight=False, soft_wrap=True)
    rows: list[report.Row] = []
    failed = 0
    described = {**describe_machine(), "load before": machine_load()}
    for workload in workloads:
        if options.workloads and workload.name not in options.workloads:
            continue
        console.print(f"{workload.name} ...")
        try:
            rows += workload.measure(options.repeats, options.peers)
        except UserError as error:
            console.print(f"{workload.name} skipped: {error}", markup=False)
        except Exception:  # the others are worth having
            traceback.print_exc()
            failed = 1
        report.write(rows, {**described, "load after": machine_load()}, options.output)
    wide = console if console.is_terminal else Console(width=180)
    wide.print(report.terminal(rows))
    console.print(f"written: {options.output / 'benchmarks.csv'}, {options.output / 'benchmarks.md'}")
    return failed


def _parser(workloads: tuple[Workload, ...]) -> argparse.ArgumentParser:
    names = ", ".join(workload.name for workload in workloads)
    parser = argparse.ArgumentParser(prog="python -m baselines.bench", description=__doc__)
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=f"of {names}; none for all")
    parser.add_argument("--device", help="the workloads for an accelerator, on this device: cuda")
    parser.add_argument(
        "--small", action="store_true", help="with --device: tiny, only to see that it works"
    )
    parser.add_argument("--repeats", type=int, default=5, help="turns of each contender (5)")
    parser.add_argument("--peers", action="store_true", help="also other frameworks that take minutes")
    parser.add_argument("--output", type=Path, default=Path("outputs/bench"), help="folder (outputs/bench)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
