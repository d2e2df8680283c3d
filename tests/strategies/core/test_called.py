"""Parts that a strategy's own step leaves out are named, once, and no part is named that acts."""

import logging
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch
from flwr.app import RecordDict
from torch import Tensor

from helpers.every_part import NODES
from helpers.federation import Federation, answer, play, record, sent_model
from strategies import (
    Adam,
    AgreementMask,
    ByExamples,
    CentralPrivacy,
    Constant,
    FedAvg,
    FedDyn,
    FedMeta,
    Grouped,
    LocalPrivacy,
    Mean,
    PseudoGradientStrategy,
    TooManyFailedRounds,
    Uniform,
    Weighting,
)
from strategies.core.strategy import NoStep
from strategies.parts.aggregation import Spare
from strategies.parts.mask import Mask, MaskResult
from strategies.parts.updates import Updates

START = {"w": np.array([1.0, -2.0, 3.0, 0.5])}


def drifting(partition_id: int, content: RecordDict) -> RecordDict:
    draws = np.random.default_rng(partition_id)
    return answer({"w": sent_model(content)["w"] + draws.normal(size=4)}, partition_id + 1)


@dataclass(kw_only=True, eq=False)
class PlainMean(PseudoGradientStrategy):
    """w <- w - mean Delta, whatever the parts."""

    weighting: Weighting = Uniform()

    def _step(self, server_round: int, updates: Updates) -> tuple[dict[str, float], Tensor]:
        weights, _ = Uniform()(updates, {})
        self._parameters = self._parameters - updates.mean(weights)
        return {}, weights


@dataclass(kw_only=True, eq=False)
class WithItsLength(PlainMean):
    """Reads one setting of one part."""

    def _step(self, server_round: int, updates: Updates) -> tuple[dict[str, float], Tensor]:
        before = self._parameters
        shown, weights = super()._step(server_round, updates)
        assert isinstance(self.step_size, Constant)
        self._parameters = before + self.step_size.eta * (self._parameters - before)
        return shown, weights


@dataclass(kw_only=True, eq=False)
class Afterwards(PseudoGradientStrategy):
    """Takes the package's step, and one more."""

    def _step(self, server_round: int, updates: Updates) -> tuple[dict[str, float], Tensor]:
        shown, weights = super()._step(server_round, updates)
        self._parameters = 0.9 * self._parameters
        return shown, weights


@dataclass(frozen=True)
class Unmasked(Mean):
    """A mean that does not ask the mask."""

    needs_only_mean: ClassVar[bool] = True

    def aggregate(
        self, updates: Updates, weights: Tensor, mask: Mask, spare: Spare = None
    ) -> tuple[Tensor, MaskResult | None]:
        return updates.mean(weights), None


PARTS = {
    "mask": AgreementMask(),
    "server_optimizer": Adam(),
    "step_size": Constant(0.5),
    "weighting": ByExamples(),
}


def warnings_of(
    strategy: PseudoGradientStrategy | Grouped, log: pytest.LogCaptureFixture, rounds: int = 2
) -> list[str]:
    with log.at_level(logging.WARNING, logger="flwr.strategies"):
        play(strategy, Federation(drifting, NODES), record(START), range(1, rounds + 1))
    return [line.getMessage() for line in log.records if "takes its step without" in line.getMessage()]


def test_what_a_step_of_ones_own_leaves_out_is_named_in_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    (line,) = warnings_of(PlainMean(**PARTS), caplog, rounds=3)  # type: ignore[arg-type]
    assert line == (
        "strategy=PlainMean takes its step without mask=AgreementMask(tau=0.4), server_optimizer="
        f"{Adam()!r}, step_size=Constant(eta=0.5), weighting=ByExamples(): no effect; leave it out, or let "
        "_step apply it"
    )


def test_a_part_of_which_a_setting_is_read_is_not_named(caplog: pytest.LogCaptureFixture) -> None:
    assert warnings_of(WithItsLength(step_size=Constant(0.5)), caplog) == []
    (line,) = warnings_of(WithItsLength(step_size=Constant(0.5), mask=AgreementMask()), caplog)
    assert "mask=" in line
    assert "step_size" not in line


@pytest.mark.parametrize(
    "strategy",
    [
        PlainMean(),
        Afterwards(**PARTS),  # type: ignore[arg-type]
        Afterwards(weighting=Uniform(), privacy=CentralPrivacy(noise_seed=0)),
        FedAvg(**PARTS),  # type: ignore[arg-type]
        FedDyn(num_nodes=NODES, mask=AgreementMask(), step_size=Constant(0.5)),
        FedMeta(gradient=lambda arrays: arrays, mask=AgreementMask()),
        FedAvg(aggregation=Unmasked(), mask=AgreementMask(0.0)),
        PlainMean(privacy=LocalPrivacy()),
    ],
    ids=lambda strategy: type(strategy).__name__,
)
def test_nothing_is_said_of_parts_that_act_or_that_nobody_chose(
    strategy: PseudoGradientStrategy, caplog: pytest.LogCaptureFixture
) -> None:
    assert warnings_of(strategy, caplog) == []


def test_watching_changes_neither_the_class_nor_the_numbers() -> None:
    watched, plain = Afterwards(**PARTS), Afterwards(**PARTS)  # type: ignore[arg-type]
    plain._watch.is_over = True
    one = play(watched, Federation(drifting, NODES), record(START), (1, 2))
    two = play(plain, Federation(drifting, NODES), record(START), (1, 2))
    assert type(watched) is Afterwards
    for (a, _), (b, _) in zip(one, two, strict=True):
        assert torch.equal(torch.from_numpy(a["w"].numpy()), torch.from_numpy(b["w"].numpy()))


def test_a_round_without_a_step_is_not_the_first(caplog: pytest.LogCaptureFixture) -> None:
    class Late(PlainMean):
        def _step(self, server_round: int, updates: Updates) -> tuple[dict[str, float], Tensor]:
            if server_round == 1:
                raise NoStep("not yet")
            return super()._step(server_round, updates)

    strategy = Late(mask=AgreementMask())
    assert warnings_of(strategy, caplog, rounds=1) == []
    assert type(strategy) is Late
    (line,) = warnings_of(strategy, caplog, rounds=2)
    assert "mask=AgreementMask" in line


def test_an_aggregation_that_leaves_out_the_mask_is_named(caplog: pytest.LogCaptureFixture) -> None:
    (line,) = warnings_of(FedAvg(aggregation=Unmasked(), mask=AgreementMask()), caplog)
    assert line.startswith("strategy=FedAvg takes its step without mask=AgreementMask(tau=0.4): no effect")


def test_groups_share_the_warning(caplog: pytest.LogCaptureFixture) -> None:
    groups = {"low": (0, 1), "high": (2, 3, 4)}
    strategy = Grouped(inner=PlainMean(mask=AgreementMask()), groups=groups)
    assert len(warnings_of(strategy, caplog)) == 1


def test_privacy_that_a_step_leaves_out_ends_the_run() -> None:
    strategy = PlainMean(privacy=CentralPrivacy())
    with pytest.raises(TooManyFailedRounds, match=r"privacy would not hold: .*PlainMean neither clips"):
        play(strategy, Federation(drifting, NODES), record(START))
