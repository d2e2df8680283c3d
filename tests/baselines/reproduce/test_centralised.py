"""A run's models beside a centralised one: the training is that of a centralised run, and the measures."""

from pathlib import Path

import pytest
import torch
from torch import nn

from baselines.experiment.experiment import load
from baselines.reproduce import centralised
from baselines.reproduce.last_model import last_model, last_models
from helpers.runs import played

SETTING = "model=mlp30 client_optimizer=adam rounds=3 checkpoint_every=3 validation_size=100 seed=4"
ALONE, FEDERATED = "partitioner=centralized num_nodes=1", "partitioner=label_groups num_nodes=6"


def linear(*rows: list[float]) -> nn.Linear:
    model = nn.Linear(2, len(rows), bias=False)
    model.weight.data = torch.tensor(rows)
    return model


def test_distance_by_hand() -> None:
    experiment = load("")
    assert centralised.distance(linear([3.0, 0.0]), linear([0.0, 4.0]), experiment) == pytest.approx(1.25)


def test_agreement_is_the_share_of_equal_predictions() -> None:
    """A model that swaps two of ten classes disagrees where the other predicts one of these."""
    experiment = load("model=softmax")
    model, other = experiment.model(), experiment.model()
    order = [1, 0, *range(2, 10)]
    other.fc.weight.data, other.fc.bias.data = model.fc.weight.data[order], model.fc.bias.data[order]  # type: ignore[union-attr, operator]
    inputs, _ = experiment.test_examples.batch(slice(None), torch.device("cpu"))
    expected = float((model(inputs).argmax(1) > 1).double().mean())
    assert 0 < expected < 1
    assert centralised.agreement(model, other, experiment) == pytest.approx(expected)


@pytest.mark.slow
def test_central_training_is_that_of_a_centralised_run(tmp_path: Path) -> None:
    played(f"{SETTING} {ALONE}", tmp_path)
    experiment, model = last_model(tmp_path)
    trained = centralised.centralised(experiment, experiment.model())
    assert centralised.distance(model, trained, experiment) < 1e-6  # the server's step rounds
    assert centralised.distance(experiment.model(), trained, experiment) > 0.1


@pytest.mark.slow
def test_a_run_is_compared_with_the_next_seed_s_training_from_its_own_start(tmp_path: Path) -> None:
    played(f"{SETTING} {FEDERATED}", tmp_path)
    experiment, model = last_model(tmp_path)
    other = load(f"{SETTING} {ALONE} seed=5")
    central = centralised.centralised(other, experiment.model())
    expected = centralised.distance(model, central, experiment)
    assert 0 < centralised.parameter_distance(tmp_path) == pytest.approx(expected)
    expected = centralised.agreement(model, central, experiment)
    assert 0.1 < centralised.same_predictions(tmp_path) == pytest.approx(expected)
    elsewhere = centralised.centralised(other, other.model())
    assert centralised.distance(model, elsewhere, experiment) > centralised.parameter_distance(tmp_path)


@pytest.mark.slow
def test_several_models_count_by_their_nodes(tmp_path: Path) -> None:
    setting = f"{SETTING} {FEDERATED} strategy=selective strategy.local_rounds=1 grouping=kmeans"
    played(setting, tmp_path)
    experiment, models = last_models(tmp_path)
    assert len(models) > 1
    assert sum(weight for _, weight in models) == 6
    other = load(f"{experiment.overrides} seed=5")
    central = centralised.centralised(other, experiment.model())
    shares = [centralised.agreement(model, central, experiment) * weight for model, weight in models]
    assert centralised.same_predictions(tmp_path) == pytest.approx(sum(shares) / 6)
