"""server-step: measure each weighting, mask, optimizer and step size beside a weighted sum of the same
updates.

The limit is ``weights @ deltas`` over the stacked [K, P] pseudo-gradients, one pass over memory. A step
leads from there to the new parameters; checking and stacking the replies is measured separately.
"""

import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import torch
from flwr.app import ConfigRecord, Context, Message, MessageType, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from baselines.experiment.experiment import load
from baselines.grids.inline import InlineGrid
from clients.round import load_arrays as load_model
from strategies import AgreementMask, PseudoGradientStrategy, Updates
from strategies.core.replies import Workspace
from strategies.shared import protocol
from strategies.shared.arrays import move_record, to_array_record

from .report import Row, Spread, Workload, alternate, compared, peak, resident

RESNET = "model=resnet18_gn model.input_shape=[3,32,32] model.num_classes=10"
SUM, BY_HAND, MASKED = "weighted sum", "by hand, on the device", "mask=agreement"
MEMORY = 1.3  # goal, as a multiple of the stacked updates
PARTS: dict[str, float | None] = {  # and their goals, as multiples of a weighted sum
    "weighting=examples": 1.5,
    "weighting=uniform": 1.5,
    "weighting=inverse_variance": None,
    "weighting=erosion weighting.requester=0": None,
    "step_size=extrapolated": 2.5,
    MASKED: 2.5,
    "mask=and": 2.5,
    "server_optimizer=momentum": None,
    "server_optimizer=adam": 3.0,
    "server_optimizer=yogi": 3.0,
    "server_optimizer=adagrad": None,
}
RANKS: dict[str, float | None] = {"weighting=effective_rank": 4.0, "weighting=stable_rank": 4.0}  # seconds


@dataclass(frozen=True)
class ServerStep(Workload):
    """Seconds and bytes of a server step.

    Parameters
    ----------
    model : the overrides that choose it
    nodes : K; weightings by rank have ``rank_nodes``
    steps : of a measurement; weightings by rank take one
    in_memory : the parts whose peak memory is measured, each in a separate process
    """

    model: str = RESNET
    nodes: int = 10
    rank_nodes: int = 4
    steps: int = 5
    in_memory: tuple[str, ...] = tuple(PARTS)

    def measure(self, repeats: int, peers: bool) -> list[Row]:
        """Measure time alternately, and memory once, as it does not vary."""
        torch.set_num_threads(1)
        rows = [*self._seconds(repeats), *self._rank_seconds(repeats)]
        for part in self.in_memory:
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
                bytes_, stacked = process.submit(measure_memory, self.model, self.nodes, part).result()
            value, quotient = Spread.of([bytes_]), Spread.of([bytes_ / stacked])
            rows.append(
                Row(self.name, part, "peak memory", "B", value, "stacked updates", quotient, MEMORY)
            )
        return rows

    def _seconds(self, repeats: int) -> list[Row]:
        strategy, replies = simulate_round(self.model, self.nodes)
        updates = stack_replies(strategy, replies)
        whole = "aggregate_train (weighting=examples)"
        calls = {SUM: _sum(updates), **{part: make_step(self.model, part, updates) for part in PARTS}}
        calls[whole] = lambda: strategy.aggregate_train(1, replies)
        samples = alternate({name: _timed(call, self.steps) for name, call in calls.items()}, repeats)
        goals = {part: {SUM: goal} for part, goal in PARTS.items()}
        return compared(self.name, "step", "s", samples, goals | {whole: {SUM: None}})

    def _rank_seconds(self, repeats: int) -> list[Row]:
        updates = stack_replies(*simulate_round(self.model, self.rank_nodes))
        few = f", {self.rank_nodes} nodes"
        contenders = {SUM + few: _timed(_sum(updates), self.steps)}
        contenders |= {part + few: _timed(make_step(self.model, part, updates), 1) for part in RANKS}
        samples = alternate(contenders, repeats)
        alone = [
            Row(self.name, part + few, "step", "s", Spread.of(samples[part + few]), at_most=goal)
            for part, goal in RANKS.items()
        ]
        return [
            *alone,
            *compared(self.name, "step", "s", samples, {p + few: {SUM + few: None} for p in RANKS}),
        ]


@dataclass(frozen=True)
class DeviceStep(Workload):
    """Seconds of gradient masked averaging's step on a device, beside the same arithmetic by hand.

    Parameters
    ----------
    model : the overrides that choose it, with the device
    at_most : seconds, the goal on an H100
    nodes : K
    steps : of a measurement, which is their mean
    """

    model: str
    at_most: float
    nodes: int = 10
    steps: int = 5

    def measure(self, repeats: int, peers: bool) -> list[Row]:
        """Measure both alternately."""
        updates = stack_replies(*simulate_round(self.model, self.nodes))
        calls = {MASKED: make_step(self.model, MASKED, updates), BY_HAND: _mask_by_hand(updates.deltas)}
        for call in calls.values():
            call()  # a device loads its kernels at their first launch
        device = updates.deltas.device
        samples = alternate(
            {name: _timed(call, self.steps, device) for name, call in calls.items()}, repeats
        )
        ours = Spread.of(samples[MASKED])
        alone = Row(self.name, MASKED, "step", "s", ours, at_most=self.at_most)
        return [alone, *compared(self.name, "step", "s", samples, {MASKED: {BY_HAND: None}})]


def _sum(updates: Updates) -> Callable[[], object]:
    weights = torch.full((len(updates.deltas),), 1 / len(updates.deltas), dtype=updates.deltas.dtype)
    return lambda: weights @ updates.deltas


def _mask_by_hand(deltas: torch.Tensor) -> Callable[[], torch.Tensor]:
    weights = torch.full((len(deltas),), 1 / len(deltas), dtype=deltas.dtype, device=deltas.device)
    tau = AgreementMask().tau

    def step() -> torch.Tensor:
        agreement = deltas.sign().mean(0).abs_()
        return (weights @ deltas).mul_(agreement.masked_fill_(agreement >= tau, 1.0))

    return step


def _timed(
    call: Callable[[], object], times: int, device: torch.device | None = None
) -> Callable[[], float]:
    """Return a measurement: the mean seconds of a call over ``times`` calls, device time included."""

    def wait() -> None:
        if device is not None and device.type != "cpu":
            torch.get_device_module(device).synchronize()

    def measure() -> float:
        wait()
        started = time.perf_counter()
        for _ in range(times):
            call()
        wait()
        return (time.perf_counter() - started) / times

    return measure


def measure_memory(model: str, nodes: int, part: str) -> tuple[int, int]:
    """Return the peak bytes beyond model and replies, and those of the stacked updates.

    It needs a fresh process: it stacks the replies and takes two steps, the second with optimizer state.
    """
    sender, replies = simulate_round(model, nodes)
    strategy = load_strategy(model, nodes, part)
    before = resident()
    updates = stack_replies(sender, replies)
    for server_round in (1, 2):
        strategy.take_step(server_round, updates)
    return peak() - before, updates.deltas.numel() * updates.deltas.element_size()


# A round of FedAvg up to its replies. Arrays stay on the configured device, as in a run in one process.


def make_step(model: str, part: str, updates: Updates) -> Callable[[], object]:
    """Return a call that takes the step of FedAvg with another part."""
    strategy = load_strategy(model, len(updates.partition_ids), part)
    return lambda: strategy.take_step(1, updates)


def load_strategy(model: str, nodes: int, part: str) -> PseudoGradientStrategy:
    """Return FedAvg with another part, ready for a step from the initial model."""
    experiment = load(f"{model} num_nodes={nodes} {part}")
    strategy = experiment.strategy()
    assert isinstance(strategy, PseudoGradientStrategy)
    strategy._start_from(move_record(experiment.initial_arrays(), experiment.device))
    return strategy


def simulate_round(model: str, nodes: int) -> tuple[PseudoGradientStrategy, list[Message]]:
    """Return FedAvg after it has asked ``nodes`` nodes to train, and their replies."""
    experiment = load(f"{model} num_nodes={nodes}")
    strategy = experiment.strategy()
    assert isinstance(strategy, PseudoGradientStrategy)
    grid = InlineGrid(_random_app(model), nodes)
    arrays = move_record(experiment.initial_arrays(), experiment.device)
    messages = strategy.configure_train(1, arrays, ConfigRecord(), grid)
    return strategy, list(grid.send_and_receive(messages))


def stack_replies(strategy: PseudoGradientStrategy, replies: list[Message]) -> Updates:
    """Return the replies checked and stacked, as ``aggregate_train`` does."""
    assert strategy.layout is not None
    strategy._workspace = Workspace()
    answered = strategy._match_replies(MessageType.TRAIN, replies)
    return strategy._collect_replies(1, answered, strategy.layout).updates


def _random_app(model: str) -> ClientApp:
    """Return a ClientApp that moves each parameter at random instead of training."""
    app = ClientApp()

    @app.query()
    def query(message: Message, context: Context) -> Message:
        reply = MetricRecord({protocol.PARTITION_ID: int(context.node_config[protocol.PARTITION_ID])})
        return Message(RecordDict({protocol.METRICS: reply}), reply_to=message)

    @app.train()
    @torch.no_grad()
    def train(message: Message, context: Context) -> Message:
        k = int(context.node_config[protocol.PARTITION_ID])
        network = load(model).node_model
        load_model(network, message.content.array_records[protocol.ARRAYS])
        draws = torch.Generator().manual_seed(k)
        for p in network.parameters():
            p.add_(torch.randn(p.shape, generator=draws).to(p.device), alpha=1e-3)
        metrics = MetricRecord({protocol.NUM_EXAMPLES: 100 + k, protocol.GRADIENT_VARIANCE: 1.0 + k})
        arrays = to_array_record({name: tensor.clone() for name, tensor in network.state_dict().items()})
        return Message(RecordDict({protocol.ARRAYS: arrays, protocol.METRICS: metrics}), reply_to=message)

    return app
