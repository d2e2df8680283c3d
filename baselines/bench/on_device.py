"""The workloads for an accelerator: ``python -m baselines.bench --device cuda``.

Pictures are noise, so that no data set is needed: a step takes as long as on real ones. Goals in seconds
are those for one H100.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.functional import log_softmax

from baselines.experiment import experiment
from baselines.experiment.experiment import Experiment
from clients.fast.cuda_graphs import capture
from strategies import AgreementMask, PseudoGradientStrategy

from .classification import collected, played, prepared
from .peers import flower, pfl_research, present
from .plain import resnet_pictures
from .report import Row, Workload, compared
from .timing import Contenders, Spread, alternate, round_seconds, run_experiment, with_rounds

# The server's step of gradient masked averaging, beside the same arithmetic by hand on the device.


BY_HAND = "by hand, on the device"
MASKED = "mask=agreement"


@dataclass(frozen=True)
class DeviceStep(Workload):
    """Seconds from the stacked updates [K, P], where a run has them, to the new parameters.

    Parameters
    ----------
    model : the overrides that choose it
    device : where the updates come from
    at_most : seconds, of one H100
    nodes : K
    steps : of a measurement, which is their mean
    """

    model: str
    device: str
    at_most: float
    nodes: int = 10
    steps: int = 5

    def measure(self, repeats: int, peers: bool) -> list[Row]:
        """Measure both by turns."""
        model = f"{self.model} device={self.device}"
        updates = collected(*played(model, self.nodes))
        strategy = prepared(model, self.nodes, MASKED)
        by_hand = _by_hand(strategy, updates.deltas)
        calls = {MASKED: lambda: strategy._step(1, updates), BY_HAND: by_hand}
        for call in calls.values():
            call()  # a device loads its kernels when they are first launched
        samples = alternate({name: self._timed(call) for name, call in calls.items()}, repeats)
        ours = Spread.of(samples[MASKED])
        alone = Row(self.name, MASKED, "step", "s", ours, at_most=self.at_most)
        return [alone, *compared(self.name, "step", "s", samples, {MASKED: {BY_HAND: None}})]

    def _timed(self, call: Callable[[], object]) -> Callable[[], float]:
        def measure() -> float:
            self._wait()
            started = time.perf_counter()
            for _ in range(self.steps):
                call()
            self._wait()
            return (time.perf_counter() - started) / self.steps

        return measure

    def _wait(self) -> None:
        """Return when the device has done all that it was given."""
        if self.device != "cpu":
            torch.get_device_module(self.device).synchronize()


def _by_hand(strategy: PseudoGradientStrategy, deltas: torch.Tensor) -> Callable[[], torch.Tensor]:
    assert isinstance(strategy.mask, AgreementMask)
    tau = strategy.mask.tau
    weights = torch.full((len(deltas),), 1 / len(deltas), dtype=deltas.dtype, device=deltas.device)

    def step() -> torch.Tensor:
        agreement = deltas.sign().mean(0).abs_()
        return (weights @ deltas).mul_(agreement.masked_fill_(agreement >= tau, 1.0))

    return step


# The limit of a round on an accelerator: FedAvg written by hand, a CUDA graph for each shape of a batch.
#
# The data lie on the device, a round's order is drawn there, and nothing goes through host memory. The
# gradient is recorded by ``make_fx``; on CUDA the recording and its SGD step are captured once and
# replayed.
# Elsewhere the same calls are made one by one, which is how this is tested without a GPU.


class Captured:
    """Rounds of federated averaging over nodes with equally many examples, in mini-batches of SGD.

    Parameters
    ----------
    this : whose model, data, device and hyper-parameters it takes
    rounds : how many to run in a measurement; the first is not counted
    together : whether all nodes take a step at once, as a stack
    autocast : the type of the arithmetic, None for the parameters' own
    """

    def __init__(
        self, this: Experiment, rounds: int, together: bool, autocast: torch.dtype | None = None
    ) -> None:
        self.device, self.rounds, self.training = this.device, rounds, this.training
        self.model, self.autocast = this.model().to(this.device), autocast
        nodes = [this.node(k).train.batch(slice(None), this.device) for k in range(this.settings.num_nodes)]
        self.size = min(len(targets) for _, targets in nodes)
        self.inputs = torch.cat([inputs[: self.size] for inputs, _ in nodes])
        self.targets = torch.cat([targets[: self.size] for _, targets in nodes])
        self.first = torch.arange(len(nodes), device=self.device)[:, None] * self.size
        self.names = [name for name, _ in self.model.named_parameters()]
        self.start = [p.detach().clone() for p in self.model.parameters()]
        self.stack = len(nodes) if together else 1  # nodes that take a step at once
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
        """Return a step of SGD on the examples that ``rows`` [nodes, batch] will name."""
        gradient = vmap(grad(self._loss)) if self.stack > 1 else self._of_one
        batch = self.inputs[rows], self.targets[rows]
        recorded = make_fx(lambda params, x, y: gradient(params, x, y))(self.params, *batch)

        def step() -> None:
            gradients = recorded(self.params, self.inputs[rows], self.targets[rows])
            torch._foreach_add_(self.params, gradients, alpha=-self.training.lr)

        return step

    def _captured(self, step: Callable[[], None]) -> Callable[[], None]:
        """Return the step as one CUDA graph, the parameters as they were; elsewhere the step itself."""
        if self.device.type != "cuda":
            return step
        before = [p.clone() for p in self.params]
        replay, _ = capture(step)
        torch._foreach_copy_(self.params, before)
        return replay

    def _loss(self, params: list[Tensor], inputs: Tensor, targets: Tensor) -> Tensor:
        named = dict(zip(self.names, params, strict=True))
        with torch.autocast(
            self.device.type, self.autocast, enabled=self.autocast is not None, cache_enabled=False
        ):
            outputs = functional_call(self.model, named, (inputs,))
            # cross_entropy under vmap puts a number on the host, which no graph can fetch from there
            return -log_softmax(outputs, 1).gather(1, targets[:, None]).mean()

    def _of_one(self, params: list[Tensor], inputs: Tensor, targets: Tensor) -> list[Tensor]:
        """Return a single node's gradients; a stack of one costs what ``vmap`` adds to every operation."""
        gradients = grad(self._loss)([p[0] for p in params], inputs[0], targets[0])
        return [g[None] for g in gradients]


def model_of(captured: Captured) -> nn.Module:
    """Return the global model as it is now."""
    with torch.no_grad():
        for p, values in zip(captured.model.parameters(), captured.start, strict=True):
            p.copy_(values)
    return captured.model


# Rounds on an accelerator, beside the hand-written round of ``captured.py`` on the same data there.


LIMIT = "hand-written round"
WAYS: tuple[tuple[str, str, torch.dtype | None, bool], ...] = (  # its name, overrides, type; has it a goal?
    ("", "", None, True),
    (", bfloat16", "autocast=bfloat16", torch.bfloat16, False),
)


@dataclass(frozen=True)
class DeviceRound(Workload):
    """Seconds of a round on a device.

    Parameters
    ----------
    setting : the overrides, with the device
    together : whether the hand-written round has all nodes take a step at once, or one after another
    rounds : of a measurement; the first is not counted
    at_most : seconds, of one H100; None without such a goal
    beside : times the hand-written round; None without such a goal
    """

    setting: str
    together: bool
    rounds: int
    at_most: float | None = None
    beside: float | None = None

    def measure(self, repeats: int, peers: bool) -> list[Row]:
        """Measure ours, in single precision and in bfloat16, each beside the hand-written round in it."""
        others = [make(self.setting, rounds=self.rounds) for make in (pfl_research, flower)]
        peers_ = present(self.name, others, peers)
        contenders: Contenders = dict(peers_)
        goals: dict[str, dict[str, float | None]] = {}
        for way, more, autocast, goal in WAYS:
            ours, limit = f"ours{way}", f"{LIMIT}{way}"
            goals[ours] = {limit: self.beside if goal else None, **dict.fromkeys(peers_)}
            contenders[ours] = partial(_seconds, with_rounds(f"{self.setting} {more}", self.rounds))
            contenders[limit] = Captured(
                experiment.load(self.setting), self.rounds, self.together, autocast
            )
        samples = alternate(contenders, repeats)
        rows = compared(self.name, "round", "s", samples, goals)
        if self.at_most is None:
            return rows
        return [
            Row(self.name, "ours", "round", "s", Spread.of(samples["ours"]), at_most=self.at_most),
            *rows,
        ]


@dataclass(frozen=True)
class Beside(Workload):
    """Seconds of a round in one way beside another way.

    Parameters
    ----------
    setting : the overrides, with the device
    ways : {subject: further overrides}; the first stands beside the second
    rounds : of a measurement; the first is not counted
    at_most : the goal for the ratio
    """

    setting: str
    at_most: float
    rounds: int
    ways: Mapping[str, str] = field(default_factory=dict)

    def measure(self, repeats: int, peers: bool) -> list[Row]:
        """Measure both ways by turns."""
        ours: Contenders = {
            subject: partial(_seconds, with_rounds(f"{self.setting} {more}", self.rounds))
            for subject, more in self.ways.items()
        }
        first, second = ours
        return compared(self.name, "round", "s", alternate(ours, repeats), {first: {second: self.at_most}})


def _seconds(overrides: str) -> float:
    return run_experiment(overrides).round


MNIST = (1, 28)  # channels, pixels of a side
CIFAR = (3, 32)
DETERMINISTIC = {"deterministic": "deterministic=true", "not deterministic": "deterministic=false"}


@dataclass(frozen=True)
class Sizes:
    """How much work there is.

    Parameters
    ----------
    many, few : nodes
    examples : of all nodes together, as many as MNIST has
    steps : of 50 pictures, that a node takes through the deep model
    rounds : of a measurement; the first is not counted
    lenet, deep : the models with convolutions
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
    """Return them for a device; ``SMALL`` takes seconds on a CPU, to see that they work."""
    many = _setting(MNIST, sizes.examples, sizes.many, 32, device)
    lenet = f"{_setting(MNIST, sizes.examples, sizes.few, 32, device)} model={sizes.lenet}"
    deep = _setting(CIFAR, sizes.few * sizes.steps * 50, sizes.few, 50, device)
    step = f"model={sizes.deep} model.input_shape=[3,32,32] model.num_classes=10"
    return (
        DeviceRound("softmax", f"{many} model=softmax", True, 2 * sizes.rounds, at_most=0.015),
        DeviceRound("mlp30", f"{many} model=mlp30", True, 2 * sizes.rounds, at_most=0.015),
        DeviceRound("lenet", lenet, True, sizes.rounds, beside=1.15),
        DeviceRound("resnet", f"{deep} model={sizes.deep}", False, sizes.rounds, beside=1.15),
        DeviceStep("server-step", step, device, 0.002, sizes.few),
        Beside("deterministic", lenet, 1.5, sizes.rounds, DETERMINISTIC),
    )


def _setting(shape: tuple[int, int], examples: int, nodes: int, batch: int, device: str) -> str:
    return f"{resnet_pictures(*shape, examples, nodes)} client.batch_size={batch} device={device}"
