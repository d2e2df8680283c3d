"""Propositions 3.3.6 and 3.3.7 of the GMA thesis: the measures, by hand and beside a plain loop."""

from math import exp, sqrt
from pathlib import Path

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector

from baselines.errors import UserError
from baselines.reproduce import propositions
from baselines.reproduce.last_model import last_model
from helpers.runs import played

SETTING = (
    "dataset=digits model=softmax partitioner=dirichlet partitioner.alpha=0.5 num_nodes=4 rounds=2 "
    "client.batch_size=null checkpoint_every=2 mask=agreement mask.tau=0.6"
)


def test_stability_by_hand() -> None:
    """Four nodes, tau 0.4, two draws: all move up; two up and two down; one up, one down, two not at all."""
    low = torch.tensor([[1.0, 0.5, 1.0], [1.0, 0.5, -1.0], [1.0, -0.5, 0.0], [1.0, -0.5, 0.0]])
    high = torch.tensor([[3.0, 1.5, 1.0], [3.0, 1.5, -1.0], [3.0, -1.5, 0.0], [3.0, -1.5, 0.0]])
    masks = torch.tensor([[1.0, 0.0, 1.0], [1.0, 0.2, 1.0]])
    actual = propositions.stability(torch.stack([low, high]).double(), masks, 0.4)
    # The means 2 and 1 have deviations sqrt(2) and sqrt(1 / 2); the third coordinate is covered by nothing.
    assert actual == pytest.approx((0.5, 1.0, 1 - exp(-((2 / sqrt(2)) ** 2))))


@pytest.mark.slow
def test_the_masked_gradient_is_that_of_a_plain_loop(tmp_path: Path) -> None:
    """On full batches a node moves against its gradient, so that is what signs agree on."""
    played(SETTING, tmp_path)
    experiment, model = last_model(tmp_path)
    gradients, sizes = [], []
    for partition_id in range(4):
        train = experiment.node(partition_id).train
        inputs, targets = train.batch(slice(0, len(train)), torch.device("cpu"))
        model.zero_grad()
        cross_entropy(model(inputs), targets).backward()
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
        sizes.append(len(train))
    stacked, weights = torch.stack(gradients), torch.tensor(sizes) / sum(sizes)
    agreement = stacked.sign().mean(0).abs()
    mask = torch.where(agreement >= 0.6 - 1e-9, 1.0, agreement)
    assert 0.1 < float((mask < 1).float().mean()) < 0.9
    expected = float((mask * (weights @ stacked)).square().sum())
    assert 10 ** propositions.masked_gradient(tmp_path) == pytest.approx(expected, rel=1e-4)
    assert len(parameters_to_vector(model.parameters())) == len(mask)
    # Without batches to draw, the nodes move alike in every draw: where the signs agree the mask is 1.
    assert propositions.mask_stability_agreeing(tmp_path) == 1.0
    assert propositions.mask_stability(tmp_path) < 1.0
    assert propositions.mask_bound(tmp_path) == pytest.approx(1.0, abs=1e-3)


@pytest.mark.slow
def test_a_run_without_a_mask_is_refused(tmp_path: Path) -> None:
    played("num_nodes=2 rounds=1 checkpoint_every=1", tmp_path)
    with pytest.raises(UserError, match="the run has no mask: run it with mask=agreement"):
        propositions.masked_gradient(tmp_path)
