"""FedAMS: two rounds by hand, beside torch's own AMSGrad, and its reduction."""

import numpy as np
import pytest
import torch
from torch.optim import Adam as TorchAdam

from helpers.federation import assert_same, play
from helpers.quadratics import quadratics, start
from strategies import AMS, Constant, FedAMS, FedAvg


def test_two_rounds_by_hand() -> None:
    """D = 4, then 1, with both decays 1/2: m = 2, 1.5; v = 8, 4.5, of which 8 stays the largest.

    D = 0.5, then 0: m = 0.25, 0.125; v = 0.125, 0.0625, below epsilon = 0.25.
    """
    optimizer, state, directions = AMS(beta1=0.5, beta2=0.5, epsilon=0.25), {}, []
    for values in ((4.0, 0.5), (1.0, 0.0)):
        direction, state = optimizer(torch.tensor(values, dtype=torch.float64), state)
        directions += direction.tolist()
    assert directions == pytest.approx([2 / 8**0.5, 0.5, 1.5 / 8**0.5, 0.25])


def test_beside_torchs_amsgrad() -> None:
    """Which divides m and the largest v by 1 - beta^t, and begins v^ at 0: epsilon is far below any v."""
    w, b1, b2 = torch.nn.Parameter(torch.zeros(50, dtype=torch.float64)), 0.9, 0.8
    theirs = TorchAdam([w], lr=1.0, betas=(b1, b2), eps=0, amsgrad=True)
    optimizer, state = AMS(beta1=b1, beta2=b2, epsilon=1e-300), {}
    for t in range(1, 8):
        d = torch.randn(50, dtype=torch.float64, generator=torch.Generator().manual_seed(t))
        before = w.detach().clone()
        w.grad = d.clone()
        theirs.step()
        direction, state = optimizer(d, state)
        scale = (1 - b2**t) ** 0.5 / (1 - b1**t)
        torch.testing.assert_close(before - w.detach(), direction * scale, rtol=1e-12, atol=1e-14)


def test_with_a_large_epsilon_it_is_fedavg_bit_for_bit() -> None:
    large = FedAMS(server_optimizer=AMS(beta1=0.0, epsilon=2.0**20), step_size=Constant(2.0**10))
    one = play(large, quadratics(), start(), range(1, 4))[-1][0]
    assert_same(one, play(FedAvg(), quadratics(), start(), range(1, 4))[-1][0])


@pytest.mark.parametrize("given", [{"beta1": 1.0}, {"beta2": -0.1}, {"epsilon": 0.0}], ids=str)
def test_what_is_out_of_range_is_refused(given: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"server_optimizer\.\w+=.* is out of range"):
        AMS(**given)


def test_a_run_descends() -> None:
    losses = [m for _, m in play(FedAMS(), quadratics(), start(), range(1, 30))]
    assert float(losses[-1]["loss"]) < float(losses[0]["loss"])  # type: ignore[arg-type]
    assert np.isfinite(float(losses[-1]["loss"]))  # type: ignore[arg-type]
