"""A hook of the user's own that is misspelt is named: nothing would call it, and the run would be FedAvg's."""

from typing import Any

import pytest
from torch import Tensor

from baselines.experiment.validation import Logger
from baselines.partitioners import Partitioner
from clients import Correction, LocalTraining, Personal
from clients.training import LocalUpdate
from strategies import FedAvg, Mask, ServerOptimizer
from strategies.core.clock import VirtualClock
from strategies.core.strategy import BaseStrategy
from strategies.parts.clustering import Grouping
from strategies.shared.compression import Compression


@pytest.mark.parametrize(
    ("base", "name", "meant"),
    [
        (FedAvg, "choose_evaluator", "choose_evaluators"),
        (FedAvg, "take_steps", "take_step"),
        (ServerOptimizer, "scale_layer", "scale_layers"),
        (Mask, "mask_value", "mask_values"),
        (Correction, "wrap_gradients", "wrap_gradient"),
        (Personal, "personalize", "personalise"),
        (VirtualClock, "require_node", "require_nodes"),
        (Grouping, "least_example", "least_examples"),
        (Compression, "train_configs", "train_config"),
        (Partitioner, "own_test_row", "own_test_rows"),
        (LocalTraining, "position", "positions"),
        (LocalUpdate, "batche", "batches"),
        (BaseStrategy, "models_to_evaluated", "models_to_evaluate"),
        (Logger, "begins", "begin"),
    ],
)
def test_a_misspelt_hook_is_named(
    base: type, name: str, meant: str, caplog: pytest.LogCaptureFixture
) -> None:
    if not hasattr(base, meant):
        pytest.fail(f"{base.__name__} has no {meant}: choose another hook")
    type("Mine", (base,), {name: lambda self: None})
    assert caplog.messages == [f"Mine.{name} overrides nothing: did you mean {meant}?"]


@pytest.mark.parametrize("kind", [property, staticmethod, classmethod])
def test_so_is_one_that_is_decorated(kind: Any, caplog: pytest.LogCaptureFixture) -> None:
    type("Mine", (Correction,), {"check_setting": kind(lambda *_: None)})
    assert caplog.messages == ["Mine.check_setting overrides nothing: did you mean check_settings?"]


@pytest.mark.parametrize(("base", "name"), [(Mask, "is_identity"), (Correction, "has_loss_term")])
def test_a_method_in_the_place_of_a_property_is_refused(base: type, name: str) -> None:
    with pytest.raises(TypeError, match=rf"Mine\.{name} is a method: decorate it with @property"):
        type("Mine", (base,), {name: lambda self: True})


def test_a_method_of_ones_own_and_a_hook_are_not(caplog: pytest.LogCaptureFixture) -> None:
    class Mine(FedAvg):
        def take_step(self, *_: object) -> Tensor:
            return self.halve(Tensor())

        def halve(self, values: Tensor) -> Tensor:
            return values / 2

    assert Mine
    assert not caplog.messages
