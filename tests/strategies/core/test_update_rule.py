"""The update rule is a function of its arguments, and a plain round asks nothing of what is off."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import RecordDict
from flwr.serverapp.strategy import Strategy

import strategies
from helpers.federation import Federation, answer, model_in, play, record, sent_model
from strategies import (
    AdaptivePrivacy,
    AgreementMask,
    ByExamples,
    Constant,
    FedAvg,
    FedAvgM,
    Identity,
    Mean,
    Momentum,
    NoMask,
    NoPrivacy,
    Uniform,
)
from strategies.core.client_registry import ContributionLog
from strategies.core.pseudo_gradient import PseudoGradientStrategy, ServerState, UpdateRule
from strategies.core.strategy import BaseStrategy
from strategies.parts.layout import Layout
from strategies.parts.privacy import PrivacyAccountant
from strategies.parts.updates import Updates
from strategies.shared import protocol

START = {"w": np.array([1.0, -2.0, 3.0]), "running_mean": np.array([4.0])}


def updates(deltas: list[list[float]], examples: list[float]) -> Updates:
    return Updates(
        torch.tensor(deltas, dtype=torch.float64),
        torch.tensor([[2.0], [6.0]], dtype=torch.float64),
        torch.tensor(examples, dtype=torch.float64),
        (0, 1),
        Layout.of(record(START)),
        torch.tensor(START["w"]),
    )


def state(privacy: Any = None) -> ServerState:
    return ServerState(
        PrivacyAccountant(privacy or NoPrivacy(), ContributionLog()),
        torch.tensor(START["w"]),
        torch.tensor(START["running_mean"]),
    )


def test_a_step_by_hand() -> None:
    """D = (d_0 + 3 d_1) / 4 = (1, -1, 0), m = (1, 1, 0), eta = 2: w - 2 m D."""
    rule = UpdateRule(ByExamples(), Mean(), Identity(), AgreementMask(), Constant(2.0), NoPrivacy())
    given = updates([[1.0, -1.0, 3.0], [1.0, -1.0, -1.0]], [1.0, 3.0])
    after, result = rule.step(1, state(), given)
    assert after.parameters.tolist() == [-1.0, 0.0, 3.0]
    assert after.buffers.tolist() == [5.0]
    assert result.weights.tolist() == [0.25, 0.75]
    assert result.metrics == {"step-size": 2.0, "masked-share": pytest.approx(1 / 3)}


@pytest.mark.parametrize(
    ("optimizer", "privacy"),
    [(Identity(), NoPrivacy()), (Momentum(0.5), AdaptivePrivacy(noise_seed=0))],
    ids=["plain", "momentum, adaptive clip"],
)
def test_the_same_step_twice_is_the_same(optimizer: Any, privacy: Any) -> None:
    rule = UpdateRule(Uniform(), Mean(), optimizer, NoMask(), Constant(), privacy)

    def stepped(before: ServerState) -> ServerState:
        return rule.step(1, before, updates([[1.0, -1.0, 3.0], [1.0, -1.0, -1.0]], [1.0, 3.0]))[0]

    before = state(privacy)
    first, second = stepped(before), stepped(before)
    assert torch.equal(first.parameters, second.parameters)
    assert first.privacy.state == second.privacy.state
    assert before.parameters.tolist() == START["w"].tolist()
    assert (before.server_optimizer, before.weighting, dict(before.privacy.state)) == ({}, {}, {})


def drifting(partition_id: int, content: RecordDict) -> RecordDict:
    draws = np.random.default_rng(partition_id)
    return answer({"w": sent_model(content)["w"] + draws.normal(size=3)}, partition_id + 1)


@pytest.mark.parametrize("make", [FedAvg, lambda: FedAvgM(average_last=2)], ids=["fedavg", "average"])
def test_a_checkpoint_of_before_continues(make: Callable[[], PseudoGradientStrategy]) -> None:
    """The keys of a checkpoint are those that it had when the state lay in attributes."""
    whole, first, second = make(), make(), make()
    *_, (expected, _) = play(whole, Federation(drifting, 3), record({"w": START["w"]}), range(1, 5))
    *_, (model, _) = play(first, Federation(drifting, 3), record({"w": START["w"]}), range(1, 3))
    saved = first.state_dict()
    keys = {"weighting", "server_optimizer", "iterates", "movement", "privacy"}
    assert saved.keys() == keys | {"failed_rounds", "sites", "contributions"}
    assert saved["privacy"] == {"state": {}, "again": 0}
    second.load_state_dict(saved)
    *_, (actual, _) = play(second, Federation(drifting, 3), model, range(3, 5))
    np.testing.assert_array_equal(model_in(actual)["w"], model_in(expected)["w"])


def test_a_step_of_ones_own_reads_and_writes_the_model() -> None:
    class Halfway(FedAvg):
        def take_step(self, server_round: int, updates: Updates) -> tuple[dict[str, float], torch.Tensor]:
            before = self.parameters.clone()
            metrics, weights = super().take_step(server_round, updates)
            self.parameters = (before + self.parameters) / 2
            return metrics, weights

    (theirs,) = play(Halfway(), Federation(drifting, 3), record({"w": START["w"]}))
    (ours,) = play(FedAvg(), Federation(drifting, 3), record({"w": START["w"]}))
    expected = (START["w"] + model_in(ours[0])["w"]) / 2
    np.testing.assert_allclose(model_in(theirs[0])["w"], expected)


OFF = [
    "strategies.parts.privacy.NoServerPrivacy.clip_",
    "strategies.parts.privacy.NoServerPrivacy.noise_",
    "strategies.parts.privacy.Privacy.epsilon",
    "strategies.parts.privacy.PrivacyAccountant.clip_",
    "strategies.parts.privacy.PrivacyAccountant.metrics",
    "strategies.parts.privacy.PrivacyAccountant.stop_reason",
    "strategies.core.client_registry.LostStateMonitor.check_round",
    "strategies.core.client_registry.ClientRegistry.recheck",
    "strategies.core.frozen.FrozenParameters.split",
    "strategies.core.frozen.FrozenParameters.record_receivers",
    "strategies.core.participation.make_node_content",
    "strategies.core.pseudo_gradient.make_node_content",
    "strategies.core.pseudo_gradient.has_mostly_diverged",
    "strategies.core.replies._call_hook",
    "strategies.core.replies.read_coded_delta",
    "strategies.core.step_watch.UnusedPartCheck.check_step",
    "strategies.core.update_monitor.Recovery.send",
    "strategies.core.update_monitor.UpdateMonitor.measure",
    "strategies.core.update_monitor.UpdateMonitor.accept",
    "strategies.core.update_monitor.require_max_norm",
    "strategies.parts.mask.Mask.mean_and_mask",
    "strategies.parts.mask.Mask.require_nodes",
    "strategies.parts.mask.NoMask.metrics",
    "strategies.parts.privacy.Privacy.check",
    "strategies.parts.privacy.Privacy.require",
    "strategies.parts.privacy.Privacy.train_config",
    "strategies.parts.server_optimizer.Identity.__call__",
    "strategies.shared.flower_names.find_advice",
    "strategies.shared.flower_names.settings_of",
    "strategies.shared.compression.NoCompression.decode",
    "strategies.shared.compression.NoCompression.train_config",
]


@pytest.mark.parametrize("name", OFF)
def test_what_is_off_is_not_asked(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def unexpected(*arguments: object, **more: object) -> None:
        raise AssertionError(f"a plain round calls {name}")

    def stock(partition_id: int, content: RecordDict) -> RecordDict:
        reply = drifting(partition_id, content)
        del reply[protocol.CONFIG]  # what this project's nodes say of themselves
        return reply

    monkeypatch.setattr(name, property(unexpected) if name.endswith("over") else unexpected)
    assert len(play(FedAvg(), Federation(stock, 3), record({"w": START["w"]}), (1, 2))) == 2


def test_at_most_two_classes_lie_between_a_method_and_flower() -> None:
    kinds = [getattr(strategies, name) for name in strategies.__all__]
    methods = [
        kind for kind in kinds if isinstance(kind, type) and issubclass(kind, PseudoGradientStrategy)
    ]
    between = {k: k.__mro__[1 : k.__mro__.index(Strategy)] for k in methods}
    assert between[FedAvg] == (PseudoGradientStrategy, BaseStrategy)
    assert between[PseudoGradientStrategy] == (BaseStrategy,)
    assert max(map(len, between.values())) == 3  # of FedDyn and Scaffold, whose nodes keep a state
