"""FedExP's way to the optimum: the measures, by hand and beside what a run keeps."""

import itertools
from pathlib import Path

import pytest
import torch
from torch.nn.utils import parameters_to_vector

from baselines.reproduce import monotony
from baselines.reproduce.last_model import last_model
from helpers.runs import played

SETTING = (
    "experiment=fedexp/synthetic strategy=fedexp step_size.epsilon=0 rounds=8 num_nodes=4 checkpoint_every=8 "
    "dataset.load.num_nodes=4 dataset.load.dimension=60 dataset.load.rows=5"
)


def test_rises_by_hand() -> None:
    assert monotony.count_rises(torch.tensor([3.0, 2.0, 2.0, 2.5, 1.0, 1.5])) == 2


@pytest.mark.slow
def test_a_run_again_ends_in_its_model_and_its_loss_is_the_residual(tmp_path: Path) -> None:
    played(SETTING, tmp_path)
    experiment, model = last_model(tmp_path)
    models = list(monotony.models_by_round(experiment))
    assert len(models) == 9
    assert torch.equal(models[-1], parameters_to_vector(model.parameters()))
    solution = monotony.nearest_solution(experiment, models[0])
    a, b = experiment.dataset.train_inputs, experiment.dataset.train_targets.flatten()
    assert (a @ solution - b).norm() < 1e-9
    other = torch.linalg.lstsq(a, b[:, None], driver="gelsd").solution.flatten()  # nearest to zero
    assert (solution - models[0]).norm() <= (other - models[0]).norm() + 1e-9
    losses = [float((a @ w - b).square().sum()) for w in models]
    rises = sum(after > before for before, after in itertools.pairwise(losses))
    assert monotony.rounds_of_rising_loss(tmp_path) == rises
    assert monotony.rounds_away(tmp_path) == 0
