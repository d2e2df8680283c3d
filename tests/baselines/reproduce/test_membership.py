"""The attack learns from half of the examples, and is measured on the other half."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

from baselines.errors import UserError
from baselines.experiment import experiment
from baselines.reproduce import attack
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
    examples_by_call: list[Examples] = []

    def telling(model: nn.Module, examples: Examples) -> np.ndarray:
        examples_by_call.append(examples)
        member = float(examples.inputs is train_inputs)
        shift = np.array([member * 9] + [0] * 9)
        return draw.normal(size=(len(examples), 10)) + shift

    monkeypatch.setattr(attack, "_logits", telling)
    assert attack.attack_accuracy(tmp_path) > 0.999
    members, others = examples_by_call
    assert len(members) == len(others) == 898
    assert len(set(members.index.tolist())) == len(set(others.index.tolist())) == 898

    monkeypatch.setattr(attack, "_logits", lambda _, examples: draw.normal(size=(len(examples), 10)))
    assert attack.attack_accuracy(tmp_path) == pytest.approx(0.5, abs=0.06)  # 3 standard deviations


@pytest.mark.slow
def test_the_trained_model_is_attacked_the_same_way_each_time(tmp_path: Path) -> None:
    played(SETTING, tmp_path)
    first = attack.attack_accuracy(tmp_path)
    assert 0.4 < first < 0.6  # a round from two nodes learns nothing by heart
    assert attack.attack_accuracy(tmp_path) == first
    curve = attack.attack_loss(tmp_path)
    assert (curve.index[0], curve.index[-1], len(curve)) == (0, 5000, 501)
    assert curve.iloc[-1] == pytest.approx(np.log(2), abs=0.05)


def test_the_attacker_descends_as_autograd_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """And begins at ln 2: it tells nothing apart."""
    monkeypatch.setattr(attack, "EPOCHS", 30)
    generator = torch.Generator().manual_seed(0)
    seen, unseen = (torch.randn(n, 3, generator=generator, dtype=torch.float64) for n in (40, 20))
    member, unseen_member = (seen[:, 0] > 0.3).long(), (unseen[:, 0] > 0.3).long()
    losses = attack.descend(seen, member, unseen, unseen_member)
    line = nn.Linear(3, 1, dtype=torch.float64)
    nn.init.zeros_(line.weight)
    nn.init.zeros_(line.bias)
    optimizer = torch.optim.SGD(line.parameters(), lr=attack.RATE)
    expected = []
    for epoch in range(31):
        if epoch % 10 == 0:
            outputs = line(unseen).squeeze(1).detach()
            expected.append(float(binary_cross_entropy_with_logits(outputs, unseen_member.double())))
        optimizer.zero_grad()
        binary_cross_entropy_with_logits(line(seen).squeeze(1), member.double()).backward()
        optimizer.step()
    assert losses == pytest.approx(expected, rel=1e-12)
    assert losses[0] == pytest.approx(np.log(2))
    assert losses == sorted(losses, reverse=True)


@pytest.mark.slow
def test_there_must_be_a_model_to_attack(tmp_path: Path) -> None:
    played("num_nodes=2 rounds=1", tmp_path)
    with pytest.raises(UserError, match="has no checkpoint to measure"):
        attack.attack_accuracy(tmp_path)
