"""The generalisation gap: by hand from metrics.csv of a real run."""

from pathlib import Path

import pandas as pd
import pytest

from baselines.errors import UserError
from baselines.reproduce.statistics import accuracy_gap
from helpers.runs import curve, played


@pytest.mark.slow
def test_training_less_test_accuracy_of_the_last_round(tmp_path: Path) -> None:
    rows = played("dataset=digits num_nodes=3 rounds=3 model=softmax", tmp_path)
    training, test = curve(rows, "train", "accuracy"), curve(rows, "test", "accuracy")
    assert len(set(training)) == 3
    assert accuracy_gap(tmp_path) == pytest.approx(training[-1] - test[-1])


@pytest.mark.slow
def test_a_run_that_has_not_measured_both_is_named(tmp_path: Path) -> None:
    played("dataset=digits num_nodes=3 rounds=1 model=softmax", tmp_path)
    rows = pd.read_csv(tmp_path / "metrics.csv")
    rows[rows.split != "train"].to_csv(tmp_path / "metrics.csv", index=False)
    with pytest.raises(UserError, match="no accuracy on the train set"):
        accuracy_gap(tmp_path)
