"""Arithmetic: fewer bits or another layout in memory, and everything else as before."""

import copy
from collections.abc import Callable
from functools import partial
from types import MethodType

import pytest
import torch
from omegaconf import open_dict
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from baselines.experiment import config, experiment
from baselines.experiment.device import prepare_model
from baselines.experiment.identity import config_hash
from baselines.models.cnn import LeNet
from clients import Classification
from clients.fast import gradient as gradient_module
from clients.round import load_arrays

CPU = torch.device("cpu")
IMAGES = "dataset=digits model=lenet model.input_shape=[1,28,28] model.num_classes=10"


def lenet(autocast: str | None = None, channels_last: bool = False) -> nn.Module:
    torch.manual_seed(3)
    return prepare_model(LeNet([1, 28, 28], 10), CPU, autocast, channels_last)


def batch() -> tuple[Tensor, Tensor]:
    draws = torch.Generator().manual_seed(0)
    return torch.rand(8, 1, 28, 28, generator=draws), torch.randint(10, (8,), generator=draws)


class Dtypes(TorchDispatchMode):
    """Notes in which precision convolutions and matrix products are computed."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[torch.dtype] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        result = func(*args, **(kwargs or {}))
        if func.overloadpacket.__name__ in ("convolution", "convolution_backward", "addmm", "mm"):
            first = result[0] if isinstance(result, tuple) else result
            self.seen |= {first.dtype} if first is not None else set()
        return result


def gradients(model: nn.Module) -> tuple[list[Tensor], dict[str, Tensor]]:
    inputs, targets = batch()
    loss, sums = Classification()(model(inputs), targets)
    return list(torch.autograd.grad(loss, list(model.parameters()))), sums


def test_bfloat16_is_in_the_products_and_nowhere_else() -> None:
    plain, cast = lenet(), lenet("bfloat16")
    with Dtypes() as dtypes:
        actual, sums = gradients(cast)
    expected, plain_sums = gradients(plain)
    assert dtypes.seen == {torch.bfloat16}
    assert {g.dtype for g in actual} == {p.dtype for p in cast.parameters()} == {torch.float32}
    assert sums["loss"].dtype == torch.float32
    torch.testing.assert_close(sums["loss"], plain_sums["loss"], rtol=1e-2, atol=0)
    assert not torch.equal(sums["loss"], plain_sums["loss"])
    for a, b in zip(actual, expected, strict=True):
        # the same way, not the same length: rounded to 8 bits, other pixels may be the pools' greatest
        assert torch.cosine_similarity(a.flatten(), b.flatten(), dim=0) > 0.99


def test_a_recorded_step_in_bfloat16_is_the_same_and_follows_the_parameters() -> None:
    model = lenet("bfloat16")
    gradient = gradient_module.Gradient(model, Classification())
    inputs, targets = batch()
    traced = gradient._trace([p.detach() for p in model.parameters()], inputs, targets)
    assert traced != gradient._eager
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(1.5)
        actual, _ = traced(list(model.parameters()), inputs, targets)
    expected, _ = gradients(model)
    assert all(torch.equal(a, b) for a, b in zip(actual, expected, strict=True))


class OwnForward(nn.Module):
    """A model that binds another forward pass to itself."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 2)
        self.forward = MethodType(OwnForward.doubled, self)  # type: ignore[method-assign]

    def doubled(self, inputs: Tensor) -> Tensor:
        return 2 * self.fc(inputs)


@pytest.mark.parametrize("make", [partial(nn.Linear, 3, 2), OwnForward])
def test_a_copy_in_bfloat16_computes_with_its_own_parameters(make: Callable[[], nn.Module]) -> None:
    model = prepare_model(make(), CPU, "bfloat16", False)
    copied = copy.deepcopy(model)
    with torch.no_grad():
        for p in copied.parameters():
            p.zero_()
    inputs = torch.ones(1, 3)
    assert copied(inputs).tolist() == [[0, 0]]
    assert model(inputs).abs().min() > 0
    grads = torch.autograd.grad(copied(inputs).sum(), list(copied.parameters()), allow_unused=True)
    assert all(g is not None and g.abs().min() > 0 for g in grads)


def test_channels_last_is_the_same_model() -> None:
    plain, last = lenet(), lenet(channels_last=True)
    weights = [p for p in last.parameters() if p.ndim == 4]
    assert weights[1].is_contiguous(memory_format=torch.channels_last)
    assert not weights[1].is_contiguous()
    for a, b in zip(gradients(last)[0], gradients(plain)[0], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_channels_last_travels_as_any_model() -> None:
    """From the server's arrays to the node's own layout in memory, and back, row by row."""
    usual, last = (experiment.load(f"{IMAGES}{more}") for more in ("", " channels_last=true"))
    model = last.model()
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
    load_arrays(model, usual.initial_arrays())
    assert not next(p for p in model.parameters() if p.ndim == 4 and p.shape[1] > 1).is_contiguous()
    for p, q in zip(model.parameters(), usual.model().parameters(), strict=True):
        assert torch.equal(p, q)


def test_float64_is_left_alone() -> None:
    model = prepare_model(nn.Linear(3, 2).double(), CPU, "bfloat16", False)
    assert model(torch.ones(1, 3, dtype=torch.float64)).dtype == torch.float64


@pytest.mark.parametrize("options", ["autocast=bfloat16", "channels_last=true"])
def test_switched_off_it_is_the_run_that_was_there_before(options: str) -> None:
    """Results from before these options keep their identity; switched on it is another run."""
    now, on = config.load(IMAGES), config.load(f"{IMAGES} {options}")
    before = now.copy()
    with open_dict(before):
        del before["autocast"], before["channels_last"]
    assert config_hash(now) == config_hash(before)
    assert config_hash(on) != config_hash(before)
