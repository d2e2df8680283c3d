"""Client optimisers against trajectories of their published implementations."""

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from timm.optim import AdamP
from torch import Tensor, nn

from clients import Classification, Examples, LocalTraining
from clients.optimizers import RMSGD
from strategies.shared.linalg import knowledge_gain, unfold

VECTORS = np.load(Path(__file__).parents[1] / "golden" / "client_optimizers.npz")
STEPS = 12


def parameters() -> list[nn.Parameter]:
    return [nn.Parameter(torch.tensor(VECTORS[f"p0_{i}"])) for i in range(5)]


def give_gradients(params: list[nn.Parameter], step: int) -> None:
    for i, p in enumerate(params):
        p.grad = torch.tensor(VECTORS[f"grad_{step}_{i}"])


@pytest.mark.parametrize(
    ("name", "settings"),
    [("adamp", {"lr": 0.01, "weight_decay": 0.01}), ("adamp_nesterov", {"lr": 0.01, "nesterov": True})],
)
def test_adamp_equals_the_trajectory(name: str, settings: dict[str, float]) -> None:
    params = parameters()
    optimizer = AdamP(params, **settings)
    for step in range(STEPS):
        give_gradients(params, step)
        optimizer.step()
    for i, p in enumerate(params):
        np.testing.assert_allclose(p.detach().numpy(), VECTORS[f"{name}_{i}"], rtol=1e-12, atol=1e-14)


def test_rmsgd_equals_the_trajectory() -> None:
    """To 3e-5: the published search for the noise variance stops at an absolute tolerance of 1e-5."""
    params = parameters()
    optimizer = RMSGD(params, lr=0.03, beta=0.8, momentum=0.9, weight_decay=1e-4)
    for step in range(STEPS):
        if step % 3 == 0:
            optimizer.epoch_step()
            rates = [optimizer.state[p]["rate"] for p in params]
            np.testing.assert_allclose(rates, VECTORS["rmsgd_lr_vectors"][step // 3], rtol=3e-5)
        give_gradients(params, step)
        optimizer.step()
    for i, p in enumerate(params):
        np.testing.assert_allclose(p.detach().numpy(), VECTORS[f"rmsgd_{i}"], rtol=1e-4, atol=5e-6)


def conv(rank: int, noise: float = 0.01) -> Tensor:
    generator = torch.Generator().manual_seed(rank)
    low = torch.randn(16, rank, generator=generator) @ torch.randn(rank, 72, generator=generator)
    return (low + noise * torch.randn(16, 72, generator=generator)).view(16, 8, 3, 3).double()


def test_rmsgd_rates_by_hand() -> None:
    weight, bias = nn.Parameter(conv(2)), nn.Parameter(torch.zeros(16).double())
    optimizer = RMSGD([weight, bias], lr=0.1, beta=0.5, zeta=2.0)

    def gain() -> float:
        return sum(knowledge_gain(unfold(weight.detach(), mode)) for mode in ("in", "out")) / 2

    optimizer.epoch_step()
    first = 0.5 * 0.1 + 2.0 * 0.1
    assert optimizer.state[weight]["rate"] == pytest.approx(first)
    before = gain()
    weight.data = conv(5)
    optimizer.epoch_step()
    second = max(0.5 * first + 2.0 * (gain() - before), 0)
    assert optimizer.state[weight]["rate"] == pytest.approx(second)
    assert optimizer.state[bias]["rate"] == optimizer.state[weight]["rate"]


def test_rmsgd_without_epochs_is_sgd() -> None:
    generator = torch.Generator().manual_seed(0)
    start = [torch.randn(32, 16, 3, 3, generator=generator), torch.randn(32, generator=generator)]
    models = [[nn.Parameter(tensor.clone()) for tensor in start] for _ in range(2)]
    settings = {"lr": 0.01, "momentum": 0.9, "weight_decay": 1e-3}
    for params, optimizer in zip(
        models, (RMSGD(models[0], **settings), torch.optim.SGD(models[1], **settings)), strict=True
    ):
        draws = torch.Generator().manual_seed(1)
        for _ in range(3):
            for p in params:
                p.grad = torch.randn(p.shape, generator=draws)
            optimizer.step()
    for mine, theirs in zip(*models, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-8)


def test_rmsgd_keeps_its_rate_while_nothing_is_learnt() -> None:
    weight = nn.Parameter(torch.zeros(32, 16, 3, 3))
    optimizer = RMSGD([weight], lr=0.1, beta=0.8)
    rates = []
    for _ in range(3):
        optimizer.epoch_step()
        rates.append(optimizer.state[weight]["rate"])
    assert rates == pytest.approx([1.8 * 0.1, 0.1, 0.1])


def test_adamp_by_hand() -> None:
    """A weight with a gradient at right angles to it: the radial part of the step is taken out."""
    w, g, lr, eps = np.array([[3.0, 4.0]]), np.array([[4.0, -3.0]]), 0.1, 1e-8
    p = nn.Parameter(torch.tensor(w))
    p.grad = torch.tensor(g)
    AdamP([p], lr=lr, eps=eps).step()
    u = g / (np.abs(g) + eps)  # Adam's first step
    n = w / 5
    expected = w - lr * (u - (u * n).sum() * n)
    np.testing.assert_allclose(p.detach().numpy(), expected, rtol=1e-7)


def test_rmsgd_goes_on_from_a_saved_state() -> None:
    first = parameters()
    optimizer = RMSGD(first)
    optimizer.epoch_step()
    give_gradients(first, 0)
    optimizer.step()
    second = [nn.Parameter(p.detach().clone()) for p in first]
    restored = RMSGD(second)
    restored.load_state_dict(copy.deepcopy(optimizer.state_dict()))  # torch shares the tensors
    for params, one in ((first, optimizer), (second, restored)):
        give_gradients(params, 1)
        one.step()
        one.epoch_step()
        give_gradients(params, 2)
        one.step()
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("settings", [{"lr": 0.0}, {"beta": 1.0}, {"zeta": 0.0}, {"momentum": -0.1}])
def test_rmsgd_refuses_values_out_of_range(settings: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(settings))}="):
        RMSGD(parameters(), **settings)


class Counting(torch.optim.SGD):
    """SGD that counts the ends of epochs."""

    ends = 0

    def epoch_step(self) -> None:
        self.ends += 1


def test_an_optimizer_is_told_of_each_epochs_end() -> None:
    built: list[Counting] = []

    def optimizer(params: list[nn.Parameter]) -> Counting:
        built.append(Counting(params, lr=0.1))
        return built[-1]

    inputs, targets = torch.randn(10, 4), torch.arange(10) % 3
    examples = Examples(inputs, targets, torch.arange(10))
    for settings, ends in (({"local_epochs": 3}, 3), ({"local_epochs": None, "local_steps": 7}, 1)):
        training = LocalTraining(optimizer=optimizer, batch_size=2, **settings)  # type: ignore[arg-type]
        training(nn.Linear(4, 3), examples, Classification(), server_round=1, seed=0)
        assert built[-1].ends == ends
