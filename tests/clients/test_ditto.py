"""Ditto: two rounds by hand, its reductions, and what the server sees of it: nothing."""

from functools import partial
from pathlib import Path

import pandas as pd
import pytest
import torch
from flwr.app import RecordDict
from torch import nn
from torch.optim import SGD

from baselines.experiment.experiment import Experiment
from clients import Classification, Ditto, LocalTraining
from helpers.one_node import OneNode
from helpers.plain_loop import CLASSES, FEATURES, assert_equal, examples, seeded
from helpers.runs import lines_in, played
from strategies.shared.arrays import values_of

SMALL = "dataset=digits num_nodes=3 rounds=3 node_test_fraction=0.2"


def test_two_rounds_and_evaluations_by_hand() -> None:
    """Of two steps each at lambda = 2: w_k = 0.1, 0.19; v = 0.1, then 0.1 + 0.1 (0.9 - 0.2) = 0.17.

    The server sends 0.5: w_k = 0.55, 0.595; v = 0.17 + 0.1 (0.83 + 0.66) = 0.319, then
    0.319 + 0.1 (0.681 + 0.362) = 0.4233. The node is judged by v, before its first round by the server's.
    """
    node = OneNode({"personal": Ditto(2.0), "local_epochs": 2}, bias=False)
    assert node.loss(0.3) == pytest.approx(0.7**2)
    for server_round, sent, w, v in ((1, 0.0, 0.19, 0.17), (2, 0.5, 0.595, 0.4233)):
        assert node.trained(sent, server_round) == pytest.approx({"weight": w})
        assert node.kept("ditto") == pytest.approx({"weight": v})
        assert node.loss(0.9) == pytest.approx((1 - v) ** 2)


def normed() -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, 8), nn.BatchNorm1d(8), nn.Linear(8, CLASSES))


def test_both_models_are_those_of_the_plain_loop_with_their_own_statistics() -> None:
    settings = {"optimizer": partial(SGD, lr=0.1, momentum=0.9), "local_epochs": 2, "batch_size": 16}
    shared, state = seeded(normed), RecordDict()
    given = examples(), Classification()
    LocalTraining(**settings, personal=Ditto(0.0))(shared, *given, server_round=1, seed=3, memory=state)
    plain = seeded(normed)
    LocalTraining(**settings)(plain, *given, server_round=1, seed=3)
    assert_equal(shared, plain)
    own = normed()
    for server_round in (2, 3):
        sent = normed()  # whatever it is: with lambda = 0 the node's own model does not see it
        LocalTraining(**settings, personal=Ditto(0.0))(
            sent, *given, server_round=server_round, seed=server_round, memory=state
        )
        LocalTraining(**settings)(plain, *given, server_round=server_round, seed=server_round)
        own.load_state_dict({n: values_of(a) for n, a in state.array_records["ditto"].items()})
        assert_equal(own, plain)
    assert not torch.equal(own[1].running_mean, sent[1].running_mean)


@pytest.mark.slow
def test_without_strength_the_nodes_own_models_are_those_of_local_training(tmp_path: Path) -> None:
    each = f"{SMALL} evaluation.node_spread=true"
    alone = losses(played(f"{each} strategy=local", tmp_path / "local"))
    free = losses(played(f"{each} personal=ditto client.personal.strength=0", tmp_path / "free"))
    near = losses(played(f"{each} personal=ditto client.personal.strength=1", tmp_path / "near"))
    assert len(alone) == 9  # three nodes in three rounds
    assert free == pytest.approx(alone, rel=1e-5)
    assert near != pytest.approx(alone, rel=1e-3)


def losses(rows: pd.DataFrame) -> list[float]:
    """Return each node's, node by node in each round."""
    own = rows[(rows.split == "site-test") & (rows.metric == "loss")]
    return [float(value) for value in own.sort_values(["round", "model"]).value]


def test_a_run_knows_that_its_nodes_keep_something() -> None:
    """It is not resumed where it would start them anew."""
    plain, ditto = (Experiment(overrides) for overrides in (SMALL, f"{SMALL} personal=ditto"))
    assert not plain.has_stateful_nodes
    assert ditto.has_stateful_nodes


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["fedavg", "scaffold", "fedadam corrections=proximal"])
def test_the_server_sees_nothing_of_it(strategy: str, tmp_path: Path) -> None:
    overrides = f"{SMALL} strategy={strategy} nodes_per_round=2"
    played(overrides, tmp_path / "plain")
    played(f"{overrides} personal=ditto", tmp_path / "ditto")
    plain, ditto = (
        [line for line in lines_in(tmp_path / name) if ",node-test," not in line]
        for name in ("plain", "ditto")
    )
    assert plain == ditto
    assert lines_in(tmp_path / "plain") != lines_in(tmp_path / "ditto")
