"""The attack learns from half of the examples, and is measured on the other half."""

from pathlib import Path

import numpy as np
import pytest
from torch import nn

from baselines.errors import UserError
from baselines.experiment import experiment
from baselines.reproduce import statistics
from clients import Examples
from helpers.runs import played

SETTING = "num_nodes=2 rounds=1 checkpoint_every=1 dataset.load.test_size=0.5"


@pytest.mark.slow
def test_what_tells_members_apart_is_found_and_noise_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played(SETTING, tmp_path)
    train_inputs = experiment.load(SETTING).dataset.train_inputs
    draw = np.random.default_rng(0)
    asked: list[Examples] = []

    def telling(model: nn.Module, examples: Examples) -> np.ndarray:
        asked.append(examples)
        member = float(examples.inputs is train_inputs)
        shift = np.array([member * 9] + [0] * 9)
        return draw.normal(size=(len(examples), 10)) + shift

    monkeypatch.setattr(statistics, "_logits", telling)
    assert statistics.attack_accuracy(tmp_path) > 0.999
    members, others = asked
    assert len(members) == len(others) == 898
    assert len(set(members.index.tolist())) == len(set(others.index.tolist())) == 898

    monkeypatch.setattr(statistics, "_logits", lambda _, examples: draw.normal(size=(len(examples), 10)))
    assert statistics.attack_accuracy(tmp_path) == pytest.approx(0.5, abs=0.06)  # 3 standard deviations


@pytest.mark.slow
def test_the_trained_model_is_attacked_the_same_way_each_time(tmp_path: Path) -> None:
    played(SETTING, tmp_path)
    first = statistics.attack_accuracy(tmp_path)
    assert 0.4 < first < 0.6  # a round from two nodes learns nothing by heart
    assert statistics.attack_accuracy(tmp_path) == first


@pytest.mark.slow
def test_there_must_be_a_model_to_attack(tmp_path: Path) -> None:
    played("num_nodes=2 rounds=1", tmp_path)
    with pytest.raises(UserError, match="has no checkpoint to attack"):
        statistics.attack_accuracy(tmp_path)
