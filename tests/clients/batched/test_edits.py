"""Corrections of batched nodes: as operations on the stack where they can be, else node by node."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch.optim import SGD

from clients import LocalTraining, Proximal
from clients.batched.stack import ModelStack
from helpers.batched import Flipped, played
from helpers.plain_loop import start_of

SHARED = {"proximal": {"proximal-mu": 0.5}, "nothing": {}}


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return what will hold one entry for each step in which nodes correct one after another."""
    calls: list[int] = []
    one_by_one = ModelStack._correct_gradients
    monkeypatch.setattr(
        ModelStack, "_correct_gradients", lambda *args: calls.append(1) or one_by_one(*args)
    )
    return calls


@pytest.mark.parametrize("correction", SHARED)
def test_all_nodes_alike_are_corrected_at_once(correction: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = counted(monkeypatch)
    assert played(configs=dict.fromkeys(range(5), SHARED[correction]))
    assert not calls


@pytest.mark.parametrize("strengths", [{0: 0.5, 1: 0.5}, dict.fromkeys(range(4), 0.5) | {4: 0.25}])
def test_nodes_that_correct_differently_do_so_one_by_one(
    strengths: dict[int, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = counted(monkeypatch)
    assert played(configs={k: {"proximal-mu": mu} for k, mu in strengths.items()})
    assert calls


def test_a_class_that_overrides_what_an_edit_does_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    class Reversed(Proximal):
        transform_gradients = Flipped.transform_gradients

    training = LocalTraining(
        optimizer=partial(SGD, lr=0.1), batch_size=8, corrections={"own": partial(Reversed, mu=0.5)}
    )
    calls = counted(monkeypatch)
    assert played(change=lambda node, k: replace(node, training=training))
    assert calls


def test_an_edit_changes_no_gradient_in_place() -> None:
    """Two parameters that are added have one gradient, which must not be corrected twice."""
    parameters = [torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(2))]
    edit = Proximal(start_of(torch.nn.ParameterList(parameters)), mu=0.5).gradient_transform
    gradient, moved = torch.ones(2), [torch.full((2,), 3.0)] * 2
    assert [g.tolist() for g in edit([gradient, gradient], moved)] == [[2, 2], [2, 2]]
    assert gradient.tolist() == [1, 1]
