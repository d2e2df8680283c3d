"""What the server distils on: examples that it sets aside, or another data set."""

from pathlib import Path

import pytest
import torch

from baselines.engine.evaluation import Evaluator
from baselines.errors import UserError
from baselines.experiment import experiment
from baselines.experiment.preflight import check_server_inputs
from helpers.runs import played

SMALL = "dataset=digits num_nodes=4 model=softmax rounds=1"
OTHER = """shape: [1, 8, 8]
num_classes: 10
load:
  _target_: baselines.datasets.digits
  mean: [0.0]
  std: [1.0]
  test_size: 0.5
  split_seed: 0
"""


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """Return overrides with an option of one's own: the digits, half of them, not normalised."""
    (tmp_path / "dataset").mkdir()
    (tmp_path / "dataset" / "halved.yaml").write_text(OTHER)
    return f"'hydra.searchpath=[\"file://{tmp_path}\"]' {SMALL} strategy=feddf"


def test_they_are_another_data_sets_as_it_shows_them(folder: str) -> None:
    loaded = experiment.Experiment(f"{folder} server_inputs=halved")
    check_server_inputs(loaded)
    inputs, _ = loaded.server_inputs.batch(slice(None), torch.device("cpu"))
    assert inputs.shape == (898, 1, 8, 8)
    assert (inputs.min(), inputs.max()) == (0, 1)
    assert Evaluator(loaded).num_inputs == 898
    assert len(loaded.validation_examples) == 0


def test_without_them_they_are_the_validation_examples() -> None:
    loaded = experiment.Experiment(f"{SMALL} strategy=feddf validation_size=20")
    assert loaded.server_inputs.index.tolist() == loaded.validation_examples.index.tolist()


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        (
            "strategy=fedavg server_inputs=digits",
            "server_inputs=digits: strategy=FedAvg does not use them",
        ),
        (
            "strategy=feddf server_inputs=synthetic",
            r"its inputs have shape \[1000\], expected some of shape \[1, 8",
        ),
        ("strategy=feddf server_inputs=[digits]", "expected an option of dataset=, or null"),
        ("strategy=feddf server_inputs=../digits", "expected an option of dataset=, or null"),
        (
            "strategy=codistillation strategy.inner._target_=strategies.FedMeta server_inputs=digits",
            "CoDistillation needs validation examples",
        ),
    ],
)
def test_what_does_not_fit_is_refused(overrides: str, line: str) -> None:
    with pytest.raises(UserError, match=line):
        check_server_inputs(experiment.Experiment(f"{SMALL} {overrides}"))


@pytest.mark.slow
def test_a_run_learns_from_them(folder: str, tmp_path: Path) -> None:
    some = played(f"{folder} server_inputs=halved", tmp_path / "some")
    assert not some.equals(played(f"{folder} strategy.distillation.steps=0", tmp_path / "none"))
