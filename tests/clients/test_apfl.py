"""APFL: two rounds by hand, beside plain torch, its reductions, and what the server sees of it: nothing."""

from functools import partial
from pathlib import Path

import pytest
import torch
from flwr.app import RecordDict
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD

from clients import APFL, Classification, FedSAM, LocalTraining
from helpers.one_node import OneNode
from helpers.plain_loop import SEED, assert_equal, examples, perceptron, seeded
from helpers.runs import lines_in, played
from strategies.shared.arrays import values_of

SMALL = "dataset=digits num_nodes=3 rounds=3 node_test_fraction=0.2"


def test_two_rounds_and_evaluations_by_hand() -> None:
    """F = (1 - a)^2 / 2, alpha = 1/2. Of two steps: v = 0.05, w = 0.1, then at 0.075 v = 0.05 + 0.05 * 0.925.

    From 0.5: at (0.09625 + 0.5) / 2 v = 0.09625 + 0.05 * 0.701875 = 0.13134375, w = 0.55; at
    (0.13134375 + 0.55) / 2 v = 0.13134375 + 0.05 * 0.659328125. It is judged by the mean of v and 0.9.
    """
    node = OneNode({"personal": APFL(0.5), "local_epochs": 2}, bias=False)
    assert node.loss(0.3) == pytest.approx(0.7**2)
    for server_round, sent, w, v in ((1, 0.0, 0.19, 0.09625), (2, 0.5, 0.595, 0.16431015625)):
        assert node.trained(sent, server_round) == pytest.approx({"weight": w})
        assert node.kept("apfl") == pytest.approx({"weight": v})
        assert node.loss(0.9) == pytest.approx((1 - (v + 0.9) / 2) ** 2)


def test_a_share_that_is_learnt_by_hand() -> None:
    """Round 1 begins with v = w: alpha stays 1/2, v = 0.05. From 0.5 at 0.275 the gradient is -0.725.

    alpha <- 0.5 - 0.1 (0.05 - 0.5) (-0.725) = 0.467375, once in the round; v moves by the alpha before.
    """
    node = OneNode({"personal": APFL(0.5, adaptive=True)}, bias=False)
    node.trained(0.0, 1)
    node.trained(0.5, 2)
    v, alpha = 0.05 + 0.05 * 0.725, 0.467375
    assert node.kept("apfl") == pytest.approx({"weight": v})
    assert node.loss(0.9) == pytest.approx((1 - alpha * v - (1 - alpha) * 0.9) ** 2)


def test_both_models_take_their_gradients_where_fedsam_says() -> None:
    """At 0 the slope is -1, and at 0 - 0.2 it is -1.2: w = 0.12, and v = 0.06, half as far."""
    beside = {"fedsam": partial(FedSAM, rho=0.2)}
    node = OneNode({"personal": APFL(0.5), "corrections": beside}, bias=False)
    assert node.trained(0.0, 1) == pytest.approx({"weight": 0.12})
    assert node.kept("apfl") == pytest.approx({"weight": 0.06})


@pytest.mark.parametrize("adaptive", [False, True], ids=["", "adaptive"])
def test_beside_plain_torch(adaptive: bool) -> None:
    """Two rounds of two epochs, 16 of 50 examples at a time, momentum for the server's model alone."""
    given = {"local_epochs": 2, "batch_size": 16, "personal": APFL(0.4, adaptive)}
    training = LocalTraining(optimizer=lambda p: SGD(p, lr=0.1, momentum=0.9), **given)
    model, state, data = seeded(perceptron), RecordDict(), examples()
    for t in (1, 2):
        training(model, data, Classification(), server_round=t, seed=SEED + t, memory=state)

    w, inputs, targets = seeded(perceptron), data.inputs[data.index], data.targets[data.index]
    v, alpha = [p.detach().clone() for p in w.parameters()], 0.4
    for t in (1, 2):
        optimizer, draws = (
            SGD(w.parameters(), lr=0.1, momentum=0.9),
            torch.Generator().manual_seed(SEED + t),
        )
        rows = [part for _ in range(2) for part in torch.randperm(50, generator=draws).split(16)]
        for step, batch in enumerate(rows):
            mixed = perceptron()
            for p, mine, shared in zip(mixed.parameters(), v, w.parameters(), strict=True):
                p.data = alpha * mine + (1 - alpha) * shared.detach()
            cross_entropy(mixed(inputs[batch]), targets[batch]).backward()
            slopes = [p.grad for p in mixed.parameters() if p.grad is not None]
            ways = [mine - shared.detach() for mine, shared in zip(v, w.parameters(), strict=True)]
            v = [mine - 0.1 * alpha * g for mine, g in zip(v, slopes, strict=True)]
            if adaptive and step == 0:
                alpha -= 0.1 * sum(float((g * way).sum()) for g, way in zip(slopes, ways, strict=True))
            optimizer.zero_grad()
            cross_entropy(w(inputs[batch]), targets[batch]).backward()
            optimizer.step()
    assert_equal(model, w)
    kept = state.array_records["apfl"]
    for (name, _), mine in zip(w.named_parameters(), v, strict=True):
        torch.testing.assert_close(values_of(kept[name]), mine, rtol=1e-5, atol=1e-6)
    assert state.config_records["apfl-alpha"]["alpha"] == pytest.approx(alpha, rel=1e-5)
    assert (alpha != 0.4) == adaptive


def test_a_share_of_one_trains_locally() -> None:
    """v~ = v: the node's own model never sees the server's again."""
    own, state = seeded(perceptron), RecordDict()
    training = LocalTraining(optimizer=lambda p: SGD(p, lr=0.1), personal=APFL(1.0))
    alone, given = seeded(perceptron), (examples(), Classification())
    for t in (1, 2):
        sent = own if t == 1 else perceptron()
        training(sent, *given, server_round=t, seed=t, memory=state)
        LocalTraining(optimizer=lambda p: SGD(p, lr=0.1))(alone, *given, server_round=t, seed=t)
    judged = perceptron()
    training.personal.personalise(judged, *given, None, state)  # type: ignore[union-attr]
    for a, b in zip(judged.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)


def normed() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))


def test_the_servers_model_is_that_without_it_with_its_running_statistics() -> None:
    plain, beside = seeded(normed), seeded(normed)
    given = examples(), Classification()
    LocalTraining(optimizer=lambda p: SGD(p, lr=0.1))(plain, *given, server_round=1, seed=3)
    training = LocalTraining(optimizer=lambda p: SGD(p, lr=0.1), personal=APFL(0.7))
    training(beside, *given, server_round=1, seed=3, memory=RecordDict())
    assert_equal(plain, beside)


def test_a_run_is_fedavgs_and_without_a_share_its_evaluations_too(tmp_path: Path) -> None:
    played(SMALL, tmp_path / "plain")
    played(f"{SMALL} personal=apfl client.personal.alpha=0", tmp_path / "none")
    played(f"{SMALL} personal=apfl", tmp_path / "some")
    plain, none, some = (lines_in(tmp_path / name) for name in ("plain", "none", "some"))
    assert none == plain
    assert [line for line in some if "node-test" not in line] == [
        line for line in plain if "node-test" not in line
    ]
    assert some != plain
