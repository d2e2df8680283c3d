"""The generators of an accelerator, by what torch says of its kind; pretended ones stand for real ones."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from clients.fast.guards import get_accelerator_states, restore_random_state


class One:
    """As torch.mps: one generator, always there."""

    def __init__(self) -> None:
        self.state = torch.tensor([1], dtype=torch.uint8)

    def get_rng_state(self) -> Tensor:
        return self.state.clone()

    def set_rng_state(self, state: Tensor) -> None:
        self.state = state


class Several:
    """As torch.cuda: one for each device, once one of them has been used."""

    def __init__(self, awake: bool) -> None:
        self.states = [torch.tensor([k], dtype=torch.uint8) for k in range(2)]
        self.awake = awake

    def is_initialized(self) -> bool:
        return self.awake

    def get_rng_state_all(self) -> list[Tensor]:
        return [state.clone() for state in self.states]

    def set_rng_state_all(self, states: list[Tensor]) -> None:
        self.states = states


def claim(monkeypatch: pytest.MonkeyPatch, module: object) -> None:
    accelerator = SimpleNamespace(
        is_available=lambda: module is not None, current_accelerator=lambda: torch.device("mps")
    )
    monkeypatch.setattr(torch, "accelerator", accelerator)
    monkeypatch.setattr(torch, "get_device_module", lambda _: module)


def test_one_generator_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    apple = One()
    claim(monkeypatch, apple)
    with restore_random_state():
        apple.state.add_(5)
    assert apple.state.tolist() == [1]


def test_those_of_all_devices_are_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    cards = Several(awake=True)
    claim(monkeypatch, cards)
    with restore_random_state():
        cards.states[1].add_(5)
    assert [state.tolist() for state in cards.states] == [[0], [1]]


@pytest.mark.parametrize("module", [None, Several(awake=False)], ids=["none", "asleep"])
def test_what_nobody_has_used_is_left_alone(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    claim(monkeypatch, module)
    assert get_accelerator_states() == []
