"""Which buffers are frozen: statistics that cannot move, and what a module declares."""

import pytest
import torch
from torch import nn

from clients.frozen import Frozen, check_unchanged, frozen_names


class Kept(nn.Module):
    """A layer whose batch norm stays in evaluation mode, over one that trains."""

    def __init__(self, *, is_frozen: bool = True) -> None:
        super().__init__()
        self.below, self.norm, self.above = nn.BatchNorm1d(3), nn.BatchNorm1d(3), nn.Linear(3, 2)
        self.norm.requires_grad_(not is_frozen)
        self.below.requires_grad_(False)

    def train(self, mode: bool = True) -> "Kept":
        super().train(mode)
        self.norm.eval()
        return self


AFFINE = ("below.weight", "below.bias", "norm.weight", "norm.bias")
STATISTICS = ("norm.running_mean", "norm.running_var", "norm.num_batches_tracked")


def test_a_frozen_batch_norm_in_evaluation_mode_is_frozen_with_its_statistics() -> None:
    assert frozen_names(Kept()) == (*AFFINE, *STATISTICS)
    assert frozen_names(Kept(is_frozen=False)) == AFFINE[:2]


def test_the_modes_stay_as_they_were() -> None:
    model = Kept().eval()
    model.above.train()
    frozen_names(model)
    assert [name for name, module in model.named_modules() if module.training] == ["above"]


def test_evaluation_mode_that_training_ends_freezes_nothing() -> None:
    model = nn.Sequential(nn.BatchNorm1d(3, affine=False), nn.Linear(3, 2))
    model[0].eval()
    assert frozen_names(model) == ()


class Table(nn.Module):
    """A table of constants, of which one is not in the model's state."""

    def __init__(self, *declared: str) -> None:
        super().__init__()
        self.frozen_buffers = declared
        self.register_buffer("positions", torch.arange(3))
        self.register_buffer("scratch", torch.zeros(3), persistent=False)


def test_a_declared_buffer_is_frozen() -> None:
    model = nn.Sequential(Table("positions", "scratch"), nn.Linear(3, 2))
    assert frozen_names(model) == ("0.positions",)
    assert frozen_names(nn.Sequential(Table(), nn.Linear(3, 2))) == ()
    frozen = Frozen.of(model)
    assert frozen is not None
    check_unchanged(model, frozen.arrays)
    model[0].positions += 1  # type: ignore[operator]
    with pytest.raises(ValueError, match=r"the frozen buffer '0\.positions' has changed .* frozen_buffers"):
        check_unchanged(model, frozen.arrays)


def test_a_buffer_that_no_module_has_is_refused() -> None:
    with pytest.raises(ValueError, match="frozen_buffers of Table: it has no buffer 'position'"):
        frozen_names(Table("position"))
