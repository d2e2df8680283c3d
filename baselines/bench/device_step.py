"""The server's step of gradient masked averaging, beside the same arithmetic by hand on the device."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from strategies import AgreementMask, PseudoGradientStrategy

from .one_round import collected, played, prepared
from .report import Row, compared
from .timing import Spread, alternate
from .workload import Workload

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
