"""Dataset: a row of each kind for each example."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from baselines.datasets import Dataset, from_torch
from baselines.errors import UserError
from clients import Classification, LazyRows
from helpers.runs import launch, own_options

SOUND = Dataset(torch.zeros(6, 2), torch.zeros(6), torch.zeros(3, 2), torch.zeros(3), Classification())


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"train_targets": torch.zeros(5)}, "6 train_inputs and 5 train_targets"),
        ({"test_targets": torch.zeros(4)}, "3 test_inputs and 4 test_targets"),
        ({"owners": np.zeros(3)}, "6 train_inputs and 3 owners"),
        ({"labels": np.zeros(3)}, "6 train_inputs and 3 labels"),
        ({"test_labels": np.zeros(6)}, "3 test_inputs and 6 test_labels"),
        ({"train_inputs": LazyRows([(torch.zeros(2), 0)])}, "1 train_inputs and 6 train_targets"),
    ],
)
def test_rows_without_a_counterpart_are_refused(changed: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=f"^the data set has {message}: expected as many$"):
        replace(SOUND, **changed)  # type: ignore[arg-type]


RETURNS = """import torch
from baselines.datasets import Dataset
from clients import Classification

def tensors():
    return torch.zeros(4, 2), torch.zeros(4)

def shorter():
    x, y = torch.zeros(4, 2), torch.zeros(3, dtype=torch.int64)
    return Dataset(x, y, x, y, Classification())

def unfit():
    x, y = torch.zeros(4, 2), torch.arange(4) % 2
    x[2] = float("nan")
    return Dataset(x, y, x.nan_to_num(), y, Classification())

def alone():
    x, y = torch.zeros(4, 2), torch.ones(4, dtype=torch.int64)
    return Dataset(x, y, x, y, Classification())

def untested():
    x, y = torch.zeros(4, 2), torch.arange(4) % 2
    return Dataset(x, y, x[:0], y[:0], Classification())

def several():
    x, y = torch.zeros(4, 2), torch.arange(4) % 2
    return Dataset({"a": x, "b": x}, y, x, y, Classification())
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            "tensors",
            "dataset.load: returning.tensors returned a tuple: expected a Dataset of baselines.datasets",
        ),
        (
            "unfit",
            "the data set's train_inputs have NaN or infinite values in 1 rows, e.g. [2], counted from 0: "
            "fill or remove them",
        ),
        ("alone", "the data set's labels are all 1: expected two classes or more; are they the labels?"),
        (
            "untested",
            "the data set has no test examples: expected one or more, or central_test=none with "
            "node_test_fraction above 0",
        ),
        (
            "several",
            "the data set's train_inputs are a dict of ['a', 'b'], and its test_inputs one tensor: "
            "expected the same",
        ),
        ("shorter", "the data set has 4 train_inputs and 3 train_targets: expected as many"),
    ],
)
def test_a_function_that_returns_no_sound_one_is_told_in_one_line(
    function: str,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    yaml = f"own: {{shape: null, num_classes: 2, load: {{_target_: returning.{function}}}}}"
    own = own_options(tmp_path, monkeypatch, "returning", RETURNS, dataset=yaml)
    assert (
        launch(own, "dataset=own", "num_nodes=2", "model=softmax", f"hydra.run.dir={tmp_path / 'run'}") == 2
    )
    assert capsys.readouterr().err == f"error: {message}\n"


class Items(list):  # type: ignore[type-arg]
    """A map-style data set."""


@pytest.mark.parametrize(
    ("items", "line"),
    [
        ([], "the test data set has no items"),
        ([{"x": 1}], "item 0 of the test data set is a dict"),
        ([({"a": "text"}, 0)], "the input of item 0 of the test data set is a dict"),
        ([("text", 0)], "the input of item 0 of the test data set is a str"),
        ([(torch.zeros(2), "a")], "the targets of the test data set cannot be read"),
    ],
)
def test_items_that_are_no_pair_of_numbers_are_refused(items: list[object], line: str) -> None:
    sound = Items([(torch.zeros(2), 0), (torch.ones(2), 1)])
    assert len(from_torch(sound, sound).test_targets) == 2
    with pytest.raises(UserError, match=line):
        from_torch(sound, Items(items))
