"""A hook of the user's own that is misspelt is named: nothing would call it, and the run would be FedAvg's."""

import pytest
from torch import Tensor

from clients import Correction, Personal
from strategies import FedAvg, Mask, ServerOptimizer


@pytest.mark.parametrize(
    ("base", "name", "meant"),
    [
        (FedAvg, "choose_evaluator", "choose_evaluators"),
        (FedAvg, "take_steps", "take_step"),
        (ServerOptimizer, "scale_layer", "scale_layers"),
        (Mask, "mask_value", "mask_values"),
        (Correction, "wrap_gradients", "wrap_gradient"),
        (Personal, "personalize", "personalise"),
    ],
)
def test_a_misspelt_hook_is_named(
    base: type, name: str, meant: str, caplog: pytest.LogCaptureFixture
) -> None:
    if not hasattr(base, meant):
        pytest.fail(f"{base.__name__} has no {meant}: choose another hook")
    type("Mine", (base,), {name: lambda self: None})
    assert caplog.messages == [f"Mine.{name} overrides nothing: did you mean {meant}?"]


def test_a_method_of_ones_own_and_a_hook_are_not(caplog: pytest.LogCaptureFixture) -> None:
    class Mine(FedAvg):
        def take_step(self, *_: object) -> Tensor:
            return self.halve(Tensor())

        def halve(self, values: Tensor) -> Tensor:
            return values / 2

    assert Mine
    assert not caplog.messages
