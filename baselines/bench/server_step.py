"""server-step: each weighting, mask, optimizer and step size beside one weighted sum of the same updates.

The limit is ``weights @ deltas`` over the stacked [K, P] pseudo-gradients, a pass over memory. A step is
what a strategy does from there to the new parameters; to check and stack the replies is measured apart.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from strategies import Updates

from . import step_memory
from .classification import collected, played, prepared
from .report import Row, Workload, compared
from .timing import Spread, alternate

RESNET = "model=resnet18_gn model.input_shape=[3,32,32] model.num_classes=10"
SUM = "weighted sum"
MEMORY = 1.3  # times the stacked updates
PARTS: dict[str, float | None] = {  # and their goals, times a weighted sum
    "weighting=examples": 1.5,
    "weighting=uniform": 1.5,
    "weighting=inverse_variance": None,
    "weighting=erosion weighting.requester=0": None,
    "step_size=extrapolated": 2.5,
    "mask=agreement": 2.5,
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
    nodes : K; the weightings by rank are given ``rank_nodes``
    steps : of a measurement; weightings by rank take one
    in_memory : the parts whose peak memory is measured, each in a process of its own
    """

    model: str = RESNET
    nodes: int = 10
    rank_nodes: int = 4
    steps: int = 5
    in_memory: tuple[str, ...] = tuple(PARTS)

    def measure(self, repeats: int, peers: bool) -> list[Row]:
        """Measure time by turns, and memory once: it does not vary."""
        torch.set_num_threads(1)
        rows = [*self._seconds(repeats), *self._rank_seconds(repeats)]
        found = step_memory.of(self.model, self.nodes, self.in_memory)
        return rows + [
            Row(self.name, part, "peak memory", "B", bytes_, "stacked updates", quotient, MEMORY)
            for part, (bytes_, quotient) in found.items()
        ]

    def _seconds(self, repeats: int) -> list[Row]:
        strategy, replies = played(self.model, self.nodes)
        updates = collected(strategy, replies)
        steps = {part: self._step(part, updates) for part in PARTS}
        whole = "aggregate_train (weighting=examples)"
        contenders = {SUM: _sum(updates), **steps, whole: lambda: strategy.aggregate_train(1, replies)}
        samples = alternate({name: _timed(call, self.steps) for name, call in contenders.items()}, repeats)
        goals = {part: {SUM: goal} for part, goal in PARTS.items()}
        return compared(self.name, "step", "s", samples, goals | {whole: {SUM: None}})

    def _rank_seconds(self, repeats: int) -> list[Row]:
        updates = collected(*played(self.model, self.rank_nodes))
        few = f", {self.rank_nodes} nodes"
        contenders = {SUM + few: _timed(_sum(updates), self.steps)}
        contenders |= {part + few: _timed(self._step(part, updates), 1) for part in RANKS}
        samples = alternate(contenders, repeats)
        beside = {part + few: {SUM + few: None} for part in RANKS}
        alone = [
            Row(self.name, part + few, "step", "s", Spread.of(samples[part + few]), at_most=goal)
            for part, goal in RANKS.items()
        ]
        return [*alone, *compared(self.name, "step", "s", samples, beside)]

    def _step(self, part: str, updates: Updates) -> Callable[[], object]:
        strategy = prepared(self.model, len(updates.partition_ids), part)
        return lambda: strategy._step(1, updates)


def _sum(updates: Updates) -> Callable[[], object]:
    weights = torch.full((len(updates.deltas),), 1 / len(updates.deltas), dtype=updates.deltas.dtype)
    return lambda: weights @ updates.deltas


def _timed(call: Callable[[], object], times: int) -> Callable[[], float]:
    """Return a measurement: the seconds of a call, the mean of ``times``."""

    def measure() -> float:
        started = time.perf_counter()
        for _ in range(times):
            call()
        return (time.perf_counter() - started) / times

    return measure
