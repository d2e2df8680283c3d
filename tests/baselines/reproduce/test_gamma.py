"""Gamma: minima beside closed forms, nodes that are equal, and runs that cannot be measured."""

from pathlib import Path

import pytest
import torch
from torch import nn

from baselines.errors import UserError
from baselines.experiment.experiment import load
from baselines.reproduce import gamma
from clients import Classification, Examples, LeastSquares
from helpers.runs import curve, played

SETTING = "model=softmax client.optimizer.weight_decay=0.01 num_nodes=3 rounds=3 checkpoint_every=3"
DECAY = 0.01


def test_a_minimum_is_that_of_the_closed_form() -> None:
    """Ridge regression: w = (A'A / n + decay I)^-1 A'b / n where the loss is half the squared error."""
    torch.manual_seed(0)
    a, b = torch.randn(20, 4, dtype=torch.float64), torch.randn(20, 1, dtype=torch.float64)
    model = nn.Linear(4, 1, bias=False, dtype=torch.float64)
    value = gamma.minimum(model, LeastSquares(), Examples(a, b, torch.arange(20)), DECAY)
    scale = float(LeastSquares()(torch.ones(1, 1), torch.zeros(1, 1))[0])
    w = torch.linalg.solve(scale * a.T @ a / 20 + DECAY / 2 * torch.eye(4), scale * a.T @ b / 20)
    expected = scale * (a @ w - b).square().mean() + DECAY / 2 * w.square().sum()
    assert float(expected) - 1e-9 <= value <= float(expected) + gamma.ERROR


def test_separable_labels_have_a_minimum_with_decay() -> None:
    """Two points and a weight w each way: the loss is log(1 + exp(-2 w)), and both weights decay."""
    model = nn.Linear(1, 2, bias=False)
    examples = Examples(torch.tensor([[1.0], [-1.0]]), torch.tensor([0, 1]), torch.arange(2))
    value = gamma.minimum(model, Classification(), examples, DECAY)
    w = torch.linspace(0, 5, 100_001)
    expected = float((torch.log1p(torch.exp(-2 * w)) + DECAY * w.square()).min())
    assert expected - 1e-6 <= value <= expected + gamma.ERROR


@pytest.mark.slow
def test_gamma_is_zero_for_equal_nodes_and_falls_with_balance(tmp_path: Path) -> None:
    degrees = {}
    for name, partitioner in {
        "equal": "replicated",
        "balanced": "label_groups partitioner.balanced=1.0",
        "unbalanced": "label_groups partitioner.balanced=0.0",
    }.items():
        played(f"{SETTING} partitioner={partitioner}", tmp_path / name)
        degrees[name] = gamma.degree_of_non_iid(tmp_path / name)
    assert abs(degrees["equal"]) <= gamma.ERROR
    assert gamma.ERROR < degrees["balanced"] < degrees["unbalanced"] / 2


@pytest.mark.slow
def test_gamma_is_a_difference_of_means(tmp_path: Path) -> None:
    played(f"{SETTING} partitioner=quantity_skew", tmp_path)
    experiment = load(f"{SETTING} partitioner=quantity_skew")
    nodes = [experiment.node(k).train for k in range(3)]
    rows = torch.cat([node.index for node in nodes])
    data = experiment.dataset
    whole = Examples(data.train_inputs, data.train_targets, rows, data.transform)
    least = [
        gamma.minimum(experiment.model(), data.task, examples, DECAY) * len(examples) / len(rows)
        for examples in (whole, *nodes)
    ]
    assert gamma.degree_of_non_iid(tmp_path) == pytest.approx(least[0] - sum(least[1:]), abs=1e-5)


@pytest.mark.slow
def test_rounds_to_a_level(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    accuracy = curve(played(f"{SETTING} partitioner=iid", tmp_path), "test", "accuracy")
    assert accuracy[1] < accuracy[2]
    monkeypatch.setattr(gamma, "LEVEL", accuracy[2])
    assert gamma.rounds_to_level(tmp_path) == 2
    monkeypatch.setattr(gamma, "LEVEL", 1.01)
    with pytest.raises(UserError, match="never reaches a test accuracy"):
        gamma.rounds_to_level(tmp_path)


@pytest.mark.slow
def test_a_run_without_weight_decay_is_refused(tmp_path: Path) -> None:
    played("model=softmax num_nodes=2 rounds=1 checkpoint_every=1", tmp_path)
    with pytest.raises(UserError, match="no weight decay"):
        gamma.degree_of_non_iid(tmp_path)
