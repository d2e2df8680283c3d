"""Parts that a strategy's own step leaves out are named, once, and no part is named that acts."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, RecordDict
from torch import Tensor

from helpers.every_part import NODES
from helpers.federation import Federation, answer, play, record, sent_model
from helpers.server_data import Functions
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
from strategies.parts.aggregation import SpareVectors
from strategies.parts.mask import Mask, MaskResult
from strategies.parts.updates import Updates
from strategies.shared.arrays import values_of

START = {"w": np.array([1.0, -2.0, 3.0, 0.5])}


def drifting(partition_id: int, content: RecordDict) -> RecordDict:
    draws = np.random.default_rng(partition_id)
    return answer({"w": sent_model(content)["w"] + draws.normal(size=4)}, partition_id + 1)


@dataclass(kw_only=True, eq=False)
class PlainMean(PseudoGradientStrategy):
    """w <- w - mean Delta, whatever the parts."""

    weighting: Weighting = Uniform()

    def take_step(self, server_round: int, updates: Updates) -> tuple[dict[str, float], Tensor]:
        weights, _ = Uniform()(updates, {})
        self.parameters = self.parameters - updates.mean(weights)
        return {}, weights


@dataclass(kw_only=True, eq=False)
class WithItsLength(PlainMean):
    """Reads one setting of one part."""

    def take_step(self, server_round: int, updates: Updates) -> tuple[dict[str, float], Tensor]:
        before = self.parameters
        metrics, weights = super().take_step(server_round, updates)
        assert isinstance(self.step_size, Constant)
        self.parameters = before + self.step_size.eta * (self.parameters - before)
        return metrics, weights


@dataclass(kw_only=True, eq=False)
class Afterwards(PseudoGradientStrategy):
    """Takes the package's step, and one more."""

    def take_step(self, server_round: int, updates: Updates) -> tuple[dict[str, float], Tensor]:
        metrics, weights = super().take_step(server_round, updates)
        self.parameters = 0.9 * self.parameters
        return metrics, weights


@dataclass(frozen=True)
class Unmasked(Mean):
    """A mean that does not ask the mask."""

    sums: ClassVar[tuple[str, ...] | None] = ()

    def aggregate(
        self, updates: Updates, weights: Tensor, mask: Mask, spare: SpareVectors = None
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
        "take_step apply it"
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
        FedMeta(server_data=Functions(gradient=lambda model: model), mask=AgreementMask()),
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
    plain._part_check.has_checked = True
    one = play(watched, Federation(drifting, NODES), record(START), (1, 2))
    two = play(plain, Federation(drifting, NODES), record(START), (1, 2))
    assert type(watched) is Afterwards
    for (a, _), (b, _) in zip(one, two, strict=True):
        assert torch.equal(torch.from_numpy(a["w"].numpy()), torch.from_numpy(b["w"].numpy()))


def test_a_round_without_a_step_is_not_the_first(caplog: pytest.LogCaptureFixture) -> None:
    class Late(PlainMean):
        def take_step(self, server_round: int, updates: Updates) -> tuple[dict[str, float], Tensor]:
            if server_round == 1:
                raise NoStep("not yet")
            return super().take_step(server_round, updates)

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


def test_hooks_by_their_old_names_act_with_one_line(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)

    class Old(FedAvg):
        """A strategy with the hooks of the last release."""

        extra_record: ClassVar[str | None] = "control"

        def _content(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord) -> RecordDict:
            content = super()._content(server_round, arrays, config)  # type: ignore[misc]
            content["control"] = self._layout.record(self._parameters, None)
            return content  # type: ignore[no-any-return]

        def _step(self, server_round: int, updates: Updates) -> tuple[dict[str, float], Tensor]:
            metrics, weights = super()._step(server_round, updates)  # type: ignore[misc]
            self._parameters = 0.5 * self._parameters
            assert self._buffers is self.buffers
            assert self._budget is self.accountant
            return metrics, weights

        def _absorb(self, server_round: int, partition_ids: Sequence[int], extra: Tensor) -> None:
            self.absorbed = (partition_ids, extra.clone())

    (line,) = caplog.messages
    hooks = "_step is now take_step, _content is now make_content, _absorb is now absorb_extra"
    assert line.endswith(f"Old: {hooks}; old names work in this release alone")
    strategy = Old()

    def answers(partition_id: int, content: RecordDict) -> RecordDict:
        reply = drifting(partition_id, content)
        reply["control"] = content["control"]
        return reply

    caplog.clear()
    (mine, _), _ = play(strategy, Federation(answers, NODES), record(START), (1, 2))
    (plain, _), _ = play(FedAvg(), Federation(drifting, NODES), record(START), (1, 2))
    assert torch.equal(values_of(mine["w"]), 0.5 * values_of(plain["w"]))
    assert strategy.absorbed[0] == tuple(range(NODES))
    named = [line for line in caplog.messages if "old names work in this release alone" in line]
    assert len(named) == 4  # an attribute each, however many rounds
    assert any("_layout is now layout" in line for line in named)


class Private(FedAvg):
    """A step of the last release that keeps the promise of privacy."""

    def _step(self, server_round: int, updates: Updates) -> tuple[dict[str, float], Tensor]:
        self._budget.clip_(updates, server_round)
        weights = torch.full((len(updates.partition_ids),), 1 / len(updates.partition_ids))
        mean = updates.mean(weights)
        self._budget.noise_(mean, len(weights), server_round)
        self._parameters = self._parameters - mean
        return {}, weights


def test_an_old_step_that_clips_and_adds_noise_keeps_privacy() -> None:
    strategy = Private(weighting=Uniform(), privacy=CentralPrivacy())
    play(strategy, Federation(drifting, NODES), record({"w": START["w"]}), (1, 2))
    assert strategy.accountant.rounds == 2


@pytest.mark.parametrize("taken", ["arrays", "arrays-1", "config", "metrics", "codes"])
@pytest.mark.parametrize("hook", ["sent_record", "extra_record", "extra_records"])
def test_a_record_of_a_name_that_messages_have_is_refused(hook: str, taken: str) -> None:
    value = (taken,) if hook == "extra_records" else taken
    strategy = type("Own", (FedAvg,), {hook: value, "__doc__": "A strategy with a record of its own."})
    with pytest.raises(ValueError, match=rf"names a record '{taken}', and messages or replies have one"):
        strategy()
