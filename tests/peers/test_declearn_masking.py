"""Our agreement mask beside declearn's ``GradientMaskedAveraging``.

Compared: m * sum_k alpha_k Delta_k with m = 1 where the nodes agree, else their agreement A, for uniform
weights, as both state it. Tolerance: declearn multiplies A * sign(A) and (1 - clip) * A + clip, and adds
the nodes up in another order, so that each coordinate may differ by a few roundings of its largest term:
1e-14 of the largest update there in float64, 1e-6 in float32.

Where the definitions differ, and what the tests hold of it:
* A = tau: ours counts it as agreement (m = 1, thesis eq. 3.1.1 has >=), declearn does not (m = A = tau).
  This includes tau = 0: coordinates without agreement are averaged in ours, which is FedAvg there, and 0
  in declearn's.
* Arrays without a dimension: declearn computes their mask in float32 (its ``maximum`` compares with a
  float32 vector, to which torch gives way), so it is handed them as vectors of one.
* Weights: with ``steps_weighted`` declearn weights the signs too; ours counts every node once. A node of
  weight n is n nodes that say the same, and with so many nodes the two are equal again.
"""

import numpy as np
import pytest
import torch
from torch import Tensor

from helpers.peers.random_updates import NUM_EXAMPLES, SHAPES, close, draws, flat, models, start, updates_of
from strategies import AgreementMask, FedGMA, Uniform

pytest.importorskip("declearn", reason="declearn is not installed: scripts/test-peers")
from declearn.aggregator import GradientMaskedAveraging  # type: ignore[import-not-found]
from declearn.model.torch import TorchVector  # type: ignore[import-not-found]

Model = dict[str, np.ndarray]
ULPS = {"float64": 1e-14, "float32": 1e-6}


def theirs(deltas: list[Model], tau: float, steps: tuple[int, ...] | None = None) -> Tensor:
    aggregator = GradientMaskedAveraging(threshold=tau, steps_weighted=steps is not None)
    vectors = [
        TorchVector({name: torch.from_numpy(np.atleast_1d(w)) for name, w in delta.items()})
        for delta in deltas
    ]
    sent = [
        aggregator.prepare_for_sharing(vector, n)
        for vector, n in zip(vectors, steps or (1,) * len(vectors), strict=True)
    ]
    total = sent[0]
    for other in sent[1:]:
        total = total.aggregate(other)
    coefs = aggregator.finalize_updates(total).coefs
    return torch.cat([coefs[name].reshape(-1) for name in deltas[0]])


def ours(deltas: list[Model], tau: float) -> Tensor:
    updates = updates_of(deltas)
    weights, _ = Uniform()(updates, {})
    mean, factors = AgreementMask(tau).mean_and_mask(updates, weights)
    return mean if factors is None else mean * factors.values


def largest(deltas: list[Model]) -> Tensor:
    return torch.stack([flat(delta) for delta in deltas]).abs().max(0).values.clamp_min(1e-30)


def agreement(deltas: list[Model]) -> Tensor:
    """Return A in plain words: the whole number K A, divided by K."""
    return torch.stack([flat(delta) for delta in deltas]).sign().sum(0).abs() / len(deltas)


@pytest.mark.parametrize("dtype", ULPS)
@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize(("nodes", "tau"), [(2, 0.3), (3, 0.5), (5, 0.1), (5, 0.5), (5, 0.9), (5, 1.0)])
def test_the_same_masked_mean_away_from_ties(nodes: int, tau: float, shapes: str, dtype: str) -> None:
    """tau = 1 is a tie where all agree, but of no effect: A = 1 = m."""
    for seed in range(5):
        (deltas,) = draws(shapes, nodes, 1, seed, dtype)
        scale = largest(deltas)
        close(ours(deltas, tau) / scale, theirs(deltas, tau) / scale, rtol=ULPS[dtype], atol=ULPS[dtype])


@pytest.mark.parametrize(("nodes", "tau"), [(2, 0.0), (4, 0.5), (5, 0.6), (5, 0.2), (5, 0.0)])
def test_at_a_tie_ours_agrees_and_theirs_does_not(nodes: int, tau: float) -> None:
    (deltas,) = draws("blocks", nodes, 1, seed=3)
    tie = agreement(deltas) == tau
    assert tie.sum() > 10
    assert (~tie).sum() > 10
    actual, expected, scale = ours(deltas, tau), theirs(deltas, tau), largest(deltas)
    plain = torch.stack([flat(delta) for delta in deltas]).mean(0)
    close((actual / scale)[~tie], (expected / scale)[~tie], rtol=1e-14, atol=1e-14)
    close((actual / scale)[tie], (plain / scale)[tie], rtol=1e-14, atol=1e-14)
    close((expected / scale)[tie], (tau * plain / scale)[tie], rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("tau", [0.35, 0.7])
def test_their_weight_of_n_steps_is_n_nodes_of_ours(tau: float) -> None:
    steps = NUM_EXAMPLES
    (deltas,) = draws("layers", len(steps), 1, seed=4)
    repeated = [delta for delta, n in zip(deltas, steps, strict=True) for _ in range(n)]
    updates = torch.stack([flat(delta) for delta in repeated])
    mean = updates.mean(0)
    factors = torch.empty_like(mean)
    AgreementMask(tau).mask_values(updates, torch.empty_like(updates), factors)
    scale = largest(deltas)
    expected = theirs(deltas, tau, steps)
    close(mean * factors / scale, expected / scale, rtol=1e-13, atol=1e-13)
    once = ours(deltas, tau)
    assert ((once - expected).abs() / scale).max() > 0.01  # the weights of the signs do matter


@pytest.mark.parametrize("shapes", SHAPES)
def test_fedgma_over_three_rounds(shapes: str) -> None:
    """w - masked mean, round after round. 1e-12: w - (w - Delta) rounds to the last digit of w."""
    rounds, w = draws(shapes, 5, 3, seed=6), start(shapes)
    actual = models(FedGMA(weighting=Uniform(), mask=AgreementMask(0.5)), w, rounds)
    position = flat(w)
    for deltas, model in zip(rounds, actual, strict=True):
        position = position - theirs(deltas, 0.5)
        close(flat(model), position, rtol=1e-12, atol=1e-12)
