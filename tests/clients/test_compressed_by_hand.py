"""Nodes that compress: what they train, send and keep, worked out by hand."""

from functools import partial

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord
from torch import nn
from torch.optim import SGD

from baselines.grids.inline import InlineGrid
from clients import Examples, LeastSquares, LocalTraining, Node, client_app
from helpers.compressing import play, quadratic, weights, zeros
from strategies import FedAvg, Grouped, LocalPrivacy, LowRank, RandomMask, ScaledSign, TopK, Uniform
from strategies.shared.codecs import subspace


def test_two_rounds_with_error_feedback_by_hand() -> None:
    """From 0, Delta = -0.5 (4, -2) = (-2, 1): -2 is sent, 1 is kept.

    From (2, 0), Delta = 0.5 (2 - 4, 0 + 2) = (-1, 1), with what was kept (-1, 2): 2 is sent, -1 is kept.
    """
    grid = quadratic()
    (first, _), (second, _) = play(FedAvg(num_nodes=1, compression=TopK(share=0.5)), grid, zeros(), 2)
    assert weights(first) == [2, 0]
    assert weights(second) == [2, -2]
    (node,) = grid.get_node_ids()
    assert weights(grid.context(node).state.array_records["left-out"]) == [-1, 0]


def test_two_rounds_without_it_by_hand() -> None:
    """The second Delta is (-1, 1), of which the first is sent, as both are as large; nothing is kept."""
    grid = quadratic()
    history = play(FedAvg(num_nodes=1, compression=TopK(share=0.5, error_feedback=False)), grid, zeros(), 2)
    assert [weights(model) for model, _ in history] == [[2, 0], [3, 0]]
    (node,) = grid.get_node_ids()
    assert not grid.context(node).state.array_records


def test_signs_with_error_feedback_by_hand() -> None:
    """(-2, 1) is sent as 1.5 (-1, 1), and (-0.5, -0.5) is kept; from (1.5, -1.5) Delta is (-1.25, 0.25)."""
    history = play(FedAvg(num_nodes=1, compression=ScaledSign()), quadratic(), zeros(), 2)
    assert weights(history[0][0]) == [1.5, -1.5]
    assert weights(history[1][0]) == [2.5, -0.5]  # (-1.75, -0.25) is 1 (-1, -1)


def test_a_masked_node_trains_what_it_sends() -> None:
    """Two steps of the rate 0.5 take what is trained to three quarters of its target, and nothing else."""
    target = torch.arange(1.0, 11)[:, None]
    data = Examples(torch.eye(10), target, torch.arange(10))
    training = LocalTraining(
        optimizer=partial(SGD, lr=0.5), local_epochs=None, local_steps=2, batch_size=None
    )
    model = nn.Linear(10, 1, bias=False)
    node = Node(model, training, LeastSquares(1), data, data, seed=5)
    grid = InlineGrid(client_app(lambda *_: node), 1)
    ((new, _),) = play(FedAvg(num_nodes=1, compression=RandomMask(share=0.3)), grid, zeros(10), 1)
    actual = np.array(weights(new))
    (seed,) = np.random.default_rng([5, 1, 0, 12]).integers(2**63, size=1).tolist()
    chosen = np.argsort(np.random.PCG64(seed).random_raw(10))[-3:]
    expected = np.zeros(10)
    expected[chosen] = 0.75 * (1 + chosen)
    assert actual == pytest.approx(expected)
    trained = model.weight.detach().numpy().ravel()
    assert trained == pytest.approx(expected)  # what was not sent has not been trained


def test_a_low_rank_node_trains_b_alone() -> None:
    """The paper's own way: w = w_0 + A B with A fixed, and SGD with momentum on B from 0."""
    draws = torch.Generator().manual_seed(2)
    inputs, targets = torch.randn(30, 6, generator=draws), torch.randn(30, 4, generator=draws)
    model, start = nn.Linear(6, 4), nn.Linear(6, 4).state_dict()
    sgd = partial(SGD, lr=0.005, momentum=0.9)
    training = LocalTraining(optimizer=sgd, local_epochs=None, local_steps=5, batch_size=None)
    data = Examples(inputs, targets, torch.arange(30))
    node = Node(model, training, LeastSquares(4), data, data, seed=5)
    grid = InlineGrid(client_app(lambda *_: node), 1)
    ((new, _),) = play(FedAvg(num_nodes=1, compression=LowRank(share=0.5)), grid, ArrayRecord(start), 1)

    seed, _ = np.random.default_rng([5, 1, 0, 12]).integers(2**63, size=2).tolist()
    a = subspace(4, 2, seed).float()
    b, bias = torch.zeros(2, 6, requires_grad=True), start["bias"].clone().requires_grad_()
    optimizer = sgd([b, bias])
    for _ in range(5):
        optimizer.zero_grad()
        out = inputs @ (start["weight"] + a @ b).T + bias
        LeastSquares(4)(out, targets)[0].backward()
        optimizer.step()
    expected = torch.cat([(start["weight"] + a @ b).flatten(), bias]).tolist()
    assert weights(new) == pytest.approx(expected, abs=1e-6)
    trained = torch.cat([p.flatten() for p in model.parameters()]).tolist()
    assert trained == pytest.approx(expected, abs=1e-6)  # nothing has moved beside the subspace


def test_the_noise_comes_first() -> None:
    """What is coded is the clipped update."""
    grid, privacy = quadratic(), LocalPrivacy(clip=0.5, noise_multiplier=0.0)
    private = FedAvg(num_nodes=1, weighting=Uniform(), privacy=privacy, compression=TopK(share=0.5))
    ((new, _),) = play(private, grid, zeros(), 1)
    assert weights(new) == pytest.approx([0.5 * 2 / 5**0.5, 0], abs=1e-6)  # (-2, 1) is cut to 0.5
    (node,) = grid.get_node_ids()
    assert weights(grid.context(node).state.array_records["left-out"]) == pytest.approx(
        [0, 0.5 / 5**0.5], abs=1e-6
    )


def test_each_groups_model_has_its_own_feedback() -> None:
    grid = quadratic()
    both = Grouped(inner=FedAvg(num_nodes=1, compression=TopK(share=0.5)), groups={"a": (0,), "b": (0,)})
    play(both, grid, zeros(), 1)
    (node,) = grid.get_node_ids()
    assert set(grid.context(node).state.array_records) == {"left-out@a", "left-out@b"}
