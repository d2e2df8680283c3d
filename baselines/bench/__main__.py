"""python -m baselines.bench [WORKLOAD...]: time each workload beside its limit and its alternatives.

It prints a table, and writes benchmarks.csv and benchmarks.md (the same table, with the machine's
description). A workload whose data are missing is skipped, with a line.

Exit status: 0; 1 when a workload failed; 2 after a user's mistake.
"""

import argparse
import logging
import sys
import traceback
from pathlib import Path

from rich.console import Console

from baselines.errors import UserError
from baselines.help import HelpParagraphs

from . import gpu, report
from .by_hand import Client, Processes, addmm, loop
from .report import Workload, describe_machine, machine_load
from .rounds import Growth, RoundTime, Way
from .server_step import ServerStep
from .start import Start

TINY = "experiment=fedexp/synthetic strategy=fedexp step_size.epsilon=0 strategy.average_last=1"
MNIST = "device=cpu dataset=mnist dataset.load.images.download=false partitioner=iid"
LENET = f"{MNIST} model=lenet num_nodes=10"
BATCHED_OVERRIDE, SEQUENTIAL_OVERRIDE = "runtime.batch_clients=true", "runtime.batch_clients=false"
RAY = "runtime=ray runtime.cpus=2"
ADDMM, LOOP, PROCESSES = "loop of addmm_", "plain loop, cpu", "plain loops in 2 processes"
MIN_RECORDED_ROUNDS = 12  # rounds; the first three take most of their steps before the step is recorded

SMALLEST_GOALS = {"at_most": 0.015 / 0.0032, "seconds": 0.015, "flower": 0.1}  # where the loop takes 3.2 ms
TINY_WAYS = {
    "inline, nodes together": Way(BATCHED_OVERRIDE, ADDMM, **SMALLEST_GOALS),
    "inline, nodes together, 2 threads": Way(f"{BATCHED_OVERRIDE} threads=2", ADDMM, **SMALLEST_GOALS),
    "inline, one by one": Way(SEQUENTIAL_OVERRIDE, ADDMM, **SMALLEST_GOALS),
    "ray, 2 workers": Way(RAY, ADDMM, seconds=0.035, flower=0.2),
}
BATCHED = {
    "inline, nodes together, cpu": Way(BATCHED_OVERRIDE, LOOP),
    "inline, nodes together, 2 threads, cpu": Way(f"{BATCHED_OVERRIDE} threads=2", LOOP, 0.35),
    "inline, one by one, cpu": Way(SEQUENTIAL_OVERRIDE, LOOP),
}
CONVOLUTIONS = {
    "inline, cpu": Way("", LOOP, 1.1),
    "inline, channels last, cpu": Way("channels_last=true", LOOP),
    "inline, bfloat16, cpu": Way("autocast=bfloat16", LOOP),
    "inline, bfloat16, channels last, cpu": Way("autocast=bfloat16 channels_last=true", LOOP),
}
ON_RAY = {"ray, 2 workers": Way(RAY, PROCESSES, 1.0)}
WORKLOADS: tuple[Workload, ...] = (
    RoundTime("tiny", TINY, TINY_WAYS, {ADDMM: addmm}, 100, Client.of_regression),
    RoundTime(
        "softmax", f"{MNIST} model=softmax num_nodes=100", BATCHED, {LOOP: loop}, MIN_RECORDED_ROUNDS
    ),
    RoundTime("mlp30", f"{MNIST} model=mlp30 num_nodes=100", BATCHED, {LOOP: loop}, MIN_RECORDED_ROUNDS),
    RoundTime("lenet", LENET, CONVOLUTIONS, {LOOP: loop}),
    RoundTime("lenet-ray", LENET, ON_RAY, {PROCESSES: Processes}),
    Start("start"),
    Growth("growth"),
    ServerStep("server-step"),
)


def main(arguments: list[str] | None = None, workloads: tuple[Workload, ...] = WORKLOADS) -> int:
    """Measure the named workloads, or all; return the exit status."""
    options = _parser(workloads).parse_args(arguments)
    if options.device:
        workloads = gpu.workloads(options.device, gpu.SMALL if options.small else gpu.Sizes())
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
    parser = argparse.ArgumentParser(
        prog="python -m baselines.bench", description=__doc__, formatter_class=HelpParagraphs
    )
    add = parser.add_argument
    add("workloads", nargs="*", metavar="WORKLOAD", help=f"of {names}; none for all")
    add("--device", help="the workloads for an accelerator, on this device: cuda")
    add("--small", action="store_true", help="with --device: tiny, only to see that it works")
    add("--repeats", type=int, default=5, help="turns of each contender (5)")
    add("--peers", action="store_true", help="also other frameworks that take minutes")
    add("--output", type=Path, default=Path("outputs/bench"), help="folder (outputs/bench)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
