"""scripts/test-gpu: check on one GPU what this project promises, and measure it, in ten minutes.

It runs the tests marked gpu and the benchmark (python -m baselines.bench --device cuda). Among the tests:
every way to compute a round agrees with a plain loop on the GPU. It needs neither Ray nor a network.

One table shows the results; it is also written to gpu.md in --output, beside the logs. Each file of tests and
each workload has its own process, since a fault on the GPU spoils its process. Each ends within the time that
is left; what is not reached is "not seen".

Exit status: 0 when all holds; 1 when something does not or was not seen; 2 without a GPU.
"""

import argparse
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.functional import log_softmax

from baselines.experiment.experiment import Experiment, load
from baselines.experiment.overrides import ROOT
from baselines.help import HelpParagraphs
from baselines.reports.tables import markdown_table
from clients.fast.cuda_graphs import capture_graph

from .by_hand import noise_setting
from .report import Workload, describe_machine, round_seconds
from .rounds import RoundTime, Way
from .server_step import DeviceStep

# The limit of a round: FedAvg written by hand, with a CUDA graph for each batch size.


class Captured:
    """Rounds of federated averaging over nodes with equally many examples, in mini-batches of SGD.

    The data are on the device, a round's order is drawn there, and nothing goes through host memory. The
    gradient is recorded by ``make_fx``; on CUDA the recording and its SGD step are captured once and then
    replayed. Elsewhere the same calls are made eagerly, so this can be tested without a GPU.

    Parameters
    ----------
    experiment : whose model, data, device and hyper-parameters it takes
    rounds : how many to run in a measurement; the first is not counted
    together : whether all nodes take a step at once, as a stack
    autocast : the dtype of the arithmetic, None for the parameters' own
    """

    def __init__(
        self, experiment: Experiment, rounds: int, is_batched: bool, autocast: torch.dtype | None = None
    ) -> None:
        self.device, self.rounds, self.training = experiment.device, rounds, experiment.training
        self.model, self.autocast = experiment.model().to(self.device), autocast
        count = experiment.settings.num_nodes
        nodes = [experiment.node(k).train.batch(slice(None), self.device) for k in range(count)]
        self.size = min(len(targets) for _, targets in nodes)
        self.inputs = torch.cat([inputs[: self.size] for inputs, _ in nodes])
        self.targets = torch.cat([targets[: self.size] for _, targets in nodes])
        self.first = torch.arange(len(nodes), device=self.device)[:, None] * self.size
        self.names = [name for name, _ in self.model.named_parameters()]
        self.start = [p.detach().clone() for p in self.model.parameters()]
        self.stack = len(nodes) if is_batched else 1  # nodes that take a step at once
        self.params = [p.expand(self.stack, *p.shape).clone() for p in self.start]
        self.steps: dict[
            int, tuple[Tensor, Callable[[], None]]
        ] = {}  # {batch size: (rows, a step on them)}

    def __call__(self) -> float:
        """Return the seconds of a round: the median of all but the first."""
        return round_seconds(self.one_round, self.rounds)

    @torch.no_grad()
    def one_round(self) -> None:
        """Train every node from the same model, and average; the device has finished on return."""
        count = len(self.first)
        order = torch.rand(count, self.size, device=self.device).argsort(1) + self.first
        mean = [torch.zeros_like(p) for p in self.start]
        for rows in torch.split(order, self.stack):
            torch._foreach_copy_(self.params, [p.expand(self.stack, *p.shape) for p in self.start])
            for batch in self._batches(rows):
                static, step = self._step(batch.shape[1])
                static.copy_(batch)
                step()
            torch._foreach_add_(mean, [p.sum(0) for p in self.params], alpha=1 / count)
        torch._foreach_copy_(self.start, mean)
        float(self.start[0].sum())  # waits for the device

    def _batches(self, rows: Tensor) -> Sequence[Tensor]:
        batches = torch.split(rows, self.training.batch_size or self.size, dim=1)
        return batches[: self.training.local_steps] if self.training.local_steps else batches

    def _step(self, size: int) -> tuple[Tensor, Callable[[], None]]:
        if size not in self.steps:
            rows = self.first[: self.stack].expand(-1, size).contiguous()
            self.steps[size] = rows, self._captured(self._recorded(rows))
        return self.steps[size]

    def _recorded(self, rows: Tensor) -> Callable[[], None]:
        """Return a step of SGD on the examples whose numbers ``rows`` [nodes, batch] will hold."""
        gradient = vmap(grad(self._loss)) if self.stack > 1 else self._of_one
        batch = self.inputs[rows], self.targets[rows]
        recorded = make_fx(lambda params, x, y: gradient(params, x, y))(self.params, *batch)

        def step() -> None:
            gradients = recorded(self.params, self.inputs[rows], self.targets[rows])
            torch._foreach_add_(self.params, gradients, alpha=-self.training.lr)

        return step

    def _captured(self, step: Callable[[], None]) -> Callable[[], None]:
        """Return the step as one CUDA graph, with unchanged parameters; on other devices the step itself."""
        if self.device.type != "cuda":
            return step
        before = [p.clone() for p in self.params]
        replay, _ = capture_graph(step)
        torch._foreach_copy_(self.params, before)
        return replay

    def _loss(self, params: list[Tensor], inputs: Tensor, targets: Tensor) -> Tensor:
        named = dict(zip(self.names, params, strict=True))
        with torch.autocast(
            self.device.type, self.autocast, enabled=self.autocast is not None, cache_enabled=False
        ):
            outputs = functional_call(self.model, named, (inputs,))
            # cross_entropy under vmap needs a number on the host, which a CUDA graph cannot read
            return -log_softmax(outputs, 1).gather(1, targets[:, None]).mean()

    def _of_one(self, params: list[Tensor], inputs: Tensor, targets: Tensor) -> list[Tensor]:
        """Return a single node's gradients, without the cost that ``vmap`` adds to every operation."""
        gradients = grad(self._loss)([p[0] for p in params], inputs[0], targets[0])
        return [g[None] for g in gradients]


def model_of(captured: Captured) -> nn.Module:
    """Return the current global model."""
    with torch.no_grad():
        for p, values in zip(captured.model.parameters(), captured.start, strict=True):
            p.copy_(values)
    return captured.model


# The workloads. Pictures are noise. Goals in seconds are those for one H100.


LIMIT_NAME = "hand-written round"
MNIST, CIFAR = (1, 28), (3, 32)  # channels, pixels of a side


@dataclass(frozen=True)
class Sizes:
    """The amount of work.

    Parameters
    ----------
    many, few : nodes
    examples : of all nodes together, as many as in MNIST
    steps : of a node with the deep model, on 50 pictures each
    rounds : of a measurement; the first is not counted
    lenet, deep : the convolutional models
    """

    many: int = 100
    few: int = 10
    examples: int = 60_000
    steps: int = 20
    rounds: int = 6
    lenet: str = "lenet"
    deep: str = "resnet18_gn"


SMALL = Sizes(many=5, few=2, examples=400, steps=1, rounds=2, lenet="softmax", deep="lenet")


def workloads(device: str, sizes: Sizes) -> tuple[Workload, ...]:
    """Return the workloads for a device; ``SMALL`` takes seconds on a CPU, to see that they work."""
    many = device_setting(MNIST, sizes.examples, sizes.many, 32, device)
    lenet = f"{device_setting(MNIST, sizes.examples, sizes.few, 32, device)} model={sizes.lenet}"
    deep = device_setting(CIFAR, sizes.few * sizes.steps * 50, sizes.few, 50, device)
    step = f"model={sizes.deep} model.input_shape=[3,32,32] model.num_classes=10 device={device}"
    return (
        _round("softmax", f"{many} model=softmax", 2 * sizes.rounds, seconds=0.015),
        _round("mlp30", f"{many} model=mlp30", 2 * sizes.rounds, seconds=0.015),
        _round("lenet", lenet, sizes.rounds, at_most=1.15),
        _round("resnet", f"{deep} model={sizes.deep}", sizes.rounds, is_batched=False, at_most=1.15),
        DeviceStep("server-step", step, 0.002, sizes.few),
    )


def _round(
    name: str,
    setting: str,
    rounds: int,
    is_batched: bool = True,
    seconds: float | None = None,
    at_most: float | None = None,
) -> RoundTime:
    """Return ours in single precision and in bfloat16, each beside a hand-written round."""

    def limit(autocast: torch.dtype | None, of: str, rounds: int) -> AbstractContextManager[Captured]:
        return nullcontext(Captured(load(of), rounds, is_batched, autocast))

    half = f"{LIMIT_NAME}, bfloat16"
    ways = {
        "ours": Way("", LIMIT_NAME, at_most, seconds),
        "ours, bfloat16": Way("autocast=bfloat16", half),
    }
    limits = {LIMIT_NAME: partial(limit, None), half: partial(limit, torch.bfloat16)}
    return RoundTime(name, setting, ways, limits, rounds)


def device_setting(shape: tuple[int, int], examples: int, nodes: int, batch: int, device: str) -> str:
    """Return the overrides for nodes with pictures of noise on a device."""
    return f"{noise_setting(*shape, examples, nodes)} client.batch_size={batch} device={device}"


# scripts/test-gpu.


HEADINGS = ("what", "found", "expected", "holds")
GPU_MARK = "mark.gpu"
PYTEST = (
    "-m",
    "gpu",
    "-q",
    "-o",
    "addopts=--strict-markers --import-mode=importlib",
    "-rfEs",
    "--color=no",
    "--tb=short",
)
OUTCOME_COUNT = re.compile(r"(\d+) (passed|failed|error|skipped)")
PYTEST_END = re.compile(r" in [\d.]+s")  # pytest's last line
ALL_PASS = "all pass"
MAX_FAILURES_NAMED = 3  # number of failures named
TEST_TIME_SHARE = 0.5  # share of the time, at most
GOAL_VERDICT = re.compile(r": (not )?met")  # shown in the last column


@dataclass(frozen=True)
class Check:
    """One line of the table.

    Parameters
    ----------
    what : the subject
    value : the result, in words
    expected : in words; empty if nothing is, as for a time without a goal
    holds : whether it is as expected; None if not seen
    """

    what: str
    value: str
    expected: str
    holds: bool | None

    @property
    def verdict(self) -> str:
        """The last column."""
        if not self.expected:
            return ""
        return "not seen" if self.holds is None else "yes" if self.holds else "no"

    @property
    def line(self) -> tuple[str, ...]:
        """The table's columns."""
        return self.what, self.value, self.expected, self.verdict


def summarize_checks(checks: Sequence[Check]) -> str:
    """Return how many checks hold, do not hold, and were not seen."""
    verdicts = [check.verdict for check in checks]
    counts = [verdicts.count(verdict) for verdict in ("yes", "no", "not seen")]
    return f"{counts[0]} hold, {counts[1]} do not, {counts[2]} not seen"


def format_terminal(checks: Sequence[Check], title: str) -> Table:
    """Return the table for the terminal."""
    out = Table(title=title)
    for heading in HEADINGS:
        out.add_column(heading, overflow="fold")
    for check in checks:
        out.add_row(*check.line, style="red" if check.verdict == "no" else None)
    return out


def write_checks(checks: Sequence[Check], machine: Mapping[str, object], target: Path) -> None:
    """Write the table, with the machine's description below it."""
    table = markdown_table(HEADINGS, [check.line for check in checks])
    described = "".join(f"- {key}: {value}\n" for key, value in machine.items())
    target.write_text(f"{table}\n{summarize_checks(checks)}\n\n{described}", encoding="utf-8")


def find_test_files() -> list[Path]:
    """Return the files with GPU tests; they are read as text, since importing some needs Ray."""
    files = (ROOT / "tests").rglob("test_*.py")
    return sorted(path.relative_to(ROOT) for path in files if GPU_MARK in path.read_text(encoding="utf-8"))


def read_tests(file: Path, output: str, status: int | None) -> Check:
    """Return the check of a file's tests from pytest's output; ``status`` None: it ran out of time."""
    lines = [line for line in output.splitlines() if line.strip()]
    last = lines[-1] if lines else "no output"
    counts = (
        {outcome: int(count) for count, outcome in OUTCOME_COUNT.findall(last)}
        if PYTEST_END.search(last)
        else {}
    )
    if status is None:
        return Check(str(file), "out of time before its end", ALL_PASS, None)
    if not counts:  # a crash, or no such test
        return Check(str(file), f"ended early with status {status}: {last}", ALL_PASS, False)
    failures = [line.rpartition("::")[2] for line in lines if line.startswith(("FAILED ", "ERROR "))]
    counted_texts = [f"{counts.get('passed', 0)} of {sum(counts.values())} pass"]
    if failures:
        counted_texts.append(
            f"failed: {'; '.join(failures[:MAX_FAILURES_NAMED])}{', ...' if len(failures) > MAX_FAILURES_NAMED else ''}"
        )
    if "skipped" in counts:
        why = next((line.partition(": ")[2] for line in lines if line.startswith("SKIPPED [")), "")
        counted_texts.append(f"{counts['skipped']} skipped: {why}")
    holds = False if failures else None if "skipped" in counts else True
    return Check(str(file), "; ".join(counted_texts), ALL_PASS, holds)


def bench_command(name: str, options: argparse.Namespace, folder: Path) -> list[str]:
    """Return the command that measures a workload."""
    small = ["--small"] if options.small else []
    arguments = [
        "--device",
        options.device,
        *small,
        "--repeats",
        str(options.repeats),
        "--output",
        str(folder),
    ]
    return [sys.executable, "-m", "baselines.bench", name, *arguments]


def read_benchmark(name: str, folder: Path, output: str, status: int | None) -> list[Check]:
    """Return a check for each line of a workload's benchmarks.md; it holds if all its goals are met."""
    if status is None:
        return [Check(name, "out of time", "measured", None)]
    if status or not (folder / "benchmarks.md").exists() or f"{name} skipped" in output:
        lines = [line for line in output.splitlines() if "Error" in line or "skipped" in line]
        return [Check(name, lines[-1] if lines else f"see {folder}", "measured", False)]
    checks = []
    for line in (folder / "benchmarks.md").read_text(encoding="utf-8").splitlines():
        if line.startswith(f"| {name} |"):
            workload, subject, quantity, value, comparison, goal = (
                cell.strip() for cell in line.split("|")[1:-1]
            )
            text = f"{value}; {comparison}" if comparison else value
            what = f"{workload}: {subject}, a {quantity}"
            checks.append(Check(what, text, GOAL_VERDICT.sub("", goal), "not met" not in goal))
    return checks


def main(arguments: list[str] | None = None) -> int:
    """Run all checks, print the table; return the exit status."""
    options = _parser().parse_args(arguments)
    if options.device == "cuda" and not torch.cuda.is_available():
        line = f"error: torch {torch.__version__} sees no GPU here: run this where there is one"
        print(line, file=sys.stderr)
        return 2
    options.output.mkdir(parents=True, exist_ok=True)
    out = Console(highlight=False, markup=False, soft_wrap=True)
    began = time.monotonic()
    checks = list(_checks(options, began, out))
    described = {
        **describe_machine(),
        "sizes": "small" if options.small else "full",
        "took": f"{time.monotonic() - began:.0f} s",
    }
    write_checks(checks, described, options.output / "gpu.md")
    wide = out if out.is_terminal else Console(width=160)
    small = ", sizes too small for the goals" * options.small
    wide.print(format_terminal(checks, f"{described['gpu']}, torch {torch.__version__}{small}"))
    out.print(f"{summarize_checks(checks)}; written: {options.output / 'gpu.md'}")
    return int(any(check.verdict in ("no", "not seen") for check in checks))


def _checks(options: argparse.Namespace, began: float, out: Console) -> Iterator[Check]:
    seconds = 60 * options.minutes
    for file in find_test_files():
        out.print(f"{file} ...")
        command = [sys.executable, "-m", "pytest", *PYTEST, "-p", "no:cacheprovider", str(file)]
        yield read_tests(
            file, *_run(command, options.output / f"{file.stem}.log", began + TEST_TIME_SHARE * seconds)
        )
    for workload in workloads(options.device, SMALL):  # only for their names
        out.print(f"benchmark {workload.name} ...")
        folder = options.output / workload.name
        folder.mkdir(exist_ok=True)
        (folder / "benchmarks.md").unlink(missing_ok=True)  # of an earlier run
        command = bench_command(workload.name, options, folder)
        yield from read_benchmark(
            workload.name, folder, *_run(command, folder / "log.txt", began + seconds)
        )


def _run(command: Sequence[str], log: Path, deadline: float) -> tuple[str, int | None]:
    """Return a command's output, also in ``log``, and its exit status; None when it ran out of time."""
    with open(log, "w", encoding="utf-8") as out:
        try:
            left = max(1.0, deadline - time.monotonic())
            status: int | None = subprocess.run(
                command, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT, timeout=left, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            status = None
    return log.read_text(encoding="utf-8", errors="replace"), status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/test-gpu", description=__doc__, formatter_class=HelpParagraphs
    )
    add = parser.add_argument
    add("--device", default="cuda", help="of the benchmark: cuda, or cpu with --small")
    add("--small", action="store_true", help="tiny sizes, only to see that it works")
    add("--minutes", type=float, default=9.5, help="in which it ends (9.5)")
    add("--repeats", type=int, default=3, help="turns of each contender (3)")
    add("--output", type=Path, default=Path("outputs/test-gpu"), help="folder (outputs/test-gpu)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
