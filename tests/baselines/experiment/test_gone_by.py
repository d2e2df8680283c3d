"""What a run goes by is measured: found before anything begins."""

from pathlib import Path

import pytest

from helpers.runs import launch

SMALL = "model=softmax num_nodes=3 rounds=1"
REFUSED = {
    "objective=test/acuracy": "is not measured: expected test/accuracy or test/loss",
    "early_stopping.patience=2 early_stopping.metric=test/f1": "early_stopping.metric=test/f1 is not",
    "objective=validation/los validation_size=100": "expected validation/accuracy or validation/loss",
    "objective=test/loss central_test=none node_test_fraction=0.2": "objective=test/loss: the server has",
    "model=resnet18 client.batch_size=24 num_nodes=10": "leaves node 3 (1 of 10 nodes) a batch of one",
    "model=resnet18 client.batch_size=1": "client.batch_size=1 leaves node 0 (3 of 3 nodes)",
}
TAKEN = [
    "objective=train/learning_rate",
    "objective=node-test/loss node_test_fraction=0.2",
    "dataset=synthetic model=linear num_nodes=20",  # which has no accuracy, and nobody has asked for one
    "client.batch_size=1",  # without batch normalisation
]


@pytest.mark.slow
@pytest.mark.parametrize(("overrides", "message"), REFUSED.items(), ids=REFUSED)
def test_what_is_not_measured_or_cannot_be_trained_is_refused(
    overrides: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert launch(*SMALL.split(), *overrides.split(), f"hydra.run.dir={tmp_path}") == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize("overrides", TAKEN)
def test_what_is_measured_is_taken(overrides: str, tmp_path: Path) -> None:
    assert launch(*SMALL.split(), *overrides.split(), f"hydra.run.dir={tmp_path}") == 0
