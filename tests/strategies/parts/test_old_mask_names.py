"""Masks that define their methods by the names of the last release: the same bytes, and one line."""

import logging
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from helpers.federation import record
from strategies import AndMask, Mask, NoMask
from strategies.parts.layout import Layout
from strategies.parts.mask import RENAMED
from strategies.parts.updates import Updates


def loud(self: Mask, deltas: Tensor, scratch: Tensor, out: Tensor) -> None:
    torch.amax(torch.abs(deltas, out=scratch), 0, out=out)
    out.gt_(0.5)


OWN: dict[str, Any] = {"idle": property(lambda self: False), "factor": loud, "of_mean": True}


def test_a_mask_with_the_old_names_gives_the_same_bytes_and_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    named = {RENAMED[old]: value for old, value in OWN.items() if old in RENAMED}
    new = type("New", (Mask,), {**named, "sums": ()})
    assert not caplog.records
    before = type("Old", (Mask,), OWN)
    (line,) = caplog.messages
    assert line.startswith("Old: idle is now is_identity, factor is now mask_values, of_mean is now sums, ")
    assert before.sums == ()  # type: ignore[attr-defined]
    draws = torch.Generator().manual_seed(0)
    deltas = torch.randn(3, 40, generator=draws)
    layout = Layout.of(record({"w": np.zeros(40, np.float32)}))
    updates = Updates(deltas, torch.zeros(3, 0), torch.ones(3), (0, 1, 2), layout, torch.zeros(40))
    weights = torch.full((3,), 1 / 3)
    (mean, result), (expected, right) = (kind().mean_and_mask(updates, weights) for kind in (before, new))
    assert torch.equal(mean, expected)
    assert torch.equal(result.values, right.values)
    assert 0 < result.masked_share < 1


def test_an_old_name_reads_what_a_built_in_mask_has() -> None:
    assert NoMask().idle  # type: ignore[attr-defined]
    assert not AndMask(0.4).idle  # type: ignore[attr-defined]
    assert AndMask(0.0).idle  # type: ignore[attr-defined]


def test_an_old_idle_that_is_a_method_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Busy\.is_identity is a method: decorate it with @property"):
        type("Busy", (Mask,), {"idle": lambda self: False})
