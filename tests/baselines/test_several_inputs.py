"""Models of several inputs: every number is that of one tensor that holds them side by side."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from baselines import results
from baselines.apps import client_app_of, get_batched_trainer, run_on_grid
from baselines.datasets import Dataset
from baselines.datasets.from_torch import from_torch
from baselines.errors import UserError
from baselines.experiment import experiment
from baselines.experiment.preflight import two_examples
from baselines.grids.inline import InlineGrid
from clients import Classification, Examples
from helpers.runs import metrics_in, played

HALVES = ("left", "right")


def halved(kind: str, change: str = "", **_: object) -> Dataset:
    """Return the digits, each as a tuple or a dict of its halves, or whole; ``change`` damages them."""
    whole = experiment.load("dataset=digits").dataset
    parts: dict[str, Any] = {}
    for name in ("train_inputs", "test_inputs"):
        rows = getattr(whole, name).flatten(1).float() / 16
        parts[name] = {"left": rows[:, :32].clone(), "right": rows[:, 32:].clone()}
    if change == "shorter":
        parts["train_inputs"]["right"] = parts["train_inputs"]["right"][1:]
    if change == "infinite":
        parts["test_inputs"]["right"][3, 5] = torch.inf
    if change == "unnamed":
        parts["train_inputs"] = dict(enumerate(parts["train_inputs"].values()))
    if kind == "tuple":
        parts = {name: tuple(halves.values()) for name, halves in parts.items()}
    if kind == "one":
        parts = {name: torch.cat(list(halves.values()), 1) for name, halves in parts.items()}
    targets = {name: getattr(whole, name) for name in ("train_targets", "test_targets")}
    return Dataset(**parts, **targets, task=Classification(), transform=doubled, num_classes=10)


def doubled(inputs: Any) -> Any:
    """A transform, of one tensor or of several."""
    if isinstance(inputs, Mapping):
        return {name: 2 * part for name, part in inputs.items()}
    return tuple(2 * part for part in inputs) if isinstance(inputs, tuple) else 2 * inputs


class Two(nn.Module):
    """Takes two halves as arguments, or by name; or one tensor of both."""

    def __init__(self, **_: object) -> None:
        super().__init__()
        self.below, self.above = nn.Linear(64, 16), nn.Linear(16, 10)

    def forward(self, left: Tensor, right: Tensor | None = None) -> Tensor:
        x = left if right is None else torch.cat([left, right], 1)
        return self.above(torch.relu(self.below(x)))  # type: ignore[no-any-return]


class OnlyOne(Two):
    def forward(self, x: Tensor) -> Tensor:
        return self.above(torch.relu(self.below(x)))  # type: ignore[no-any-return]


class Lazy(Two):
    def __init__(self, **_: object) -> None:
        super().__init__()
        self.below = nn.LazyLinear(16)


def run_of(kind: str, more: str = "", model: str = "Two", change: str = "") -> str:
    load = f"{{_target_: {__name__}.halved, kind: {kind}, change: {change or 'none'}}}"
    return (
        f"'++model={{_target_: {__name__}.{model}}}' '++dataset.load={load}' dataset.shape=null "
        f"num_nodes=3 rounds=2 {more}"
    )


def untimed(table: pd.DataFrame) -> pd.DataFrame:
    return table[~table.metric.str.contains("seconds")].reset_index(drop=True)


WAYS = {
    "plain": "",
    "nodes test": "node_test_fraction=0.2",
    "adam": "client=adam",
    "proximal": "strategy=fedprox",
    "whole batch": "client=full_batch",
    "inexact": "corrections=inexact",
    "moon": "corrections=moon",
    "losses of their own": "corrections=[fedsam,fedlc,fedntd,feddecorr]",
    "restricted softmax": "corrections=fedrs",
    "start loss": "strategy=qfedavg",
    "option 1": "strategy=scaffold strategy.option=1",
    "keep trace": "client=keep_trace",
    "ditto": "personal=ditto node_test_fraction=0.2",
    "fedrep": "personal=fedrep private=fedper node_test_fraction=0.2",
    "apfl": "personal=apfl node_test_fraction=0.2",
    "pfedme": "personal=pfedme node_test_fraction=0.2",
    "fedbabu": "personal=fedbabu node_test_fraction=0.2",
    "per-fedavg": "personal=per_fedavg node_test_fraction=0.2",
    "meta": "strategy=fedmeta validation_size=100",
    "selective": "strategy=selective strategy.local_rounds=1 validation_size=100",
    "distillation": "strategy=feddf validation_size=100",
    "bfloat16": "autocast=bfloat16",
    "classes": "evaluation.per_class=true",
    "lists": "partitioner=dirichlet num_nodes=5",
    "deterministic": "deterministic=true",
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("way", WAYS)
def test_a_run_is_that_of_one_tensor(way: str, tmp_path: Path) -> None:
    expected = untimed(played(run_of("one", WAYS[way]), tmp_path / "one"))
    for kind in ("tuple", "dict"):
        pd.testing.assert_frame_equal(
            untimed(played(run_of(kind, WAYS[way]), tmp_path / kind)), expected, check_exact=True
        )


@pytest.mark.slow
def test_lazy_modules_see_both(tmp_path: Path) -> None:
    actual = [untimed(played(run_of(kind, "", "Lazy"), tmp_path / kind)) for kind in ("one", "dict")]
    pd.testing.assert_frame_equal(*actual, check_exact=True)


@pytest.mark.slow
def test_batched_nodes_fall_back_with_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    overrides = run_of("dict")
    setup = experiment.load(overrides)
    grid = InlineGrid(client_app_of(overrides), 3, get_batched_trainer(overrides))
    run_on_grid(setup, grid, tmp_path / "dict")
    lines = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    assert lines == ["nodes are not batched and train one after another: examples are of several tensors"]
    expected = untimed(played(run_of("one"), tmp_path / "one"))
    pd.testing.assert_frame_equal(untimed(metrics_in(tmp_path / "dict")), expected, check_exact=True)


@pytest.mark.slow
def test_a_step_is_not_recorded_and_says_so_once(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    with caplog.at_level(logging.DEBUG, logger="flwr.clients"):
        played(run_of("tuple"), tmp_path)
    records = [
        one for one in caplog.records if one.getMessage().startswith("not traced: examples are of several")
    ]
    assert len(records) == 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tuple", "dict"])
def test_a_predictor_takes_several_rows(kind: str, tmp_path: Path) -> None:
    played(run_of(kind, "save=last"), tmp_path / kind)
    played(run_of("one", "save=last"), tmp_path / "one")
    whole = halved("one").test_inputs[:7]
    left, right = whole[:, :32].numpy(), whole[:, 32:].numpy()
    expected = results.predictor(tmp_path / "one")
    assert expected.transform is not None
    rows: Any = (left, right) if kind == "tuple" else {"right": right, "left": left}
    predictor = results.predictor(tmp_path / kind)
    assert np.array_equal(predictor(rows).probabilities, expected(whole).probabilities)
    message = r"a tuple of 2" if kind == "tuple" else r"a dict of \['left', 'right'\]"
    for wrong in ((left,), {"left": left}, left, [left, right]):
        with pytest.raises(UserError, match=f"the model takes several inputs: expected {message}"):
            predictor(wrong)
    shorter: Any = (left, right[1:]) if kind == "tuple" else {"left": left, "right": right[1:]}
    with pytest.raises(UserError, match="differ in number"):
        predictor(shorter)
    narrow: Any = (left, right[:, 1:]) if kind == "tuple" else {"left": left, "right": right[:, 1:]}
    with pytest.raises(UserError, match=r"the rows have shape \[7, 31\]: expected \['n', 32\]"):
        predictor(narrow)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "model", "change", "message"),
    [
        (
            "dict",
            "Two",
            "shorter",
            "1437 in 'left', 1436 in 'right': expected as many rows",
        ),
        ("dict", "Two", "infinite", "test_inputs have NaN or infinite values in 1 rows, e.g. [3]"),
        ("dict", "Two", "unnamed", "train_inputs are named [0, 1]: expected the model's keywords"),
        ("dict", "OnlyOne", "", "inputs of shape {'left': (32,), 'right': (32,)}"),
        ("tuple", "OnlyOne", "", "inputs of shape ((32,), (32,))"),
    ],
)
def test_what_does_not_fit_is_one_line(
    kind: str, model: str, change: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError) as caught:
        played(run_of(kind, model=model, change=change), tmp_path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


class Items:
    """A map-style data set whose inputs are several."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __len__(self) -> int:
        return 6

    def __getitem__(self, row: int) -> tuple[Any, int]:
        left, right = torch.full((2,), float(row)), torch.arange(3) + row
        return ((left, right) if self.kind == "tuple" else {"left": left, "right": right}), row % 2


@pytest.mark.parametrize("kind", ["tuple", "dict"])
def test_items_of_several_are_read_row_by_row(kind: str) -> None:
    data = from_torch(Items(kind), Items(kind))
    examples = Examples(data.train_inputs, data.train_targets, torch.tensor([4, 1, 3]))
    inputs, targets = examples.batch(torch.tensor([2, 0]), torch.device("cpu"))
    left, right = inputs if kind == "tuple" else (inputs[name] for name in HALVES)
    assert left.tolist() == [[3, 3], [4, 4]]
    assert right.tolist() == [[3, 4, 5], [4, 5, 6]]
    assert targets.tolist() == [1, 0]


def test_several_arrays_of_numpy_become_tensors() -> None:
    rows, labels = {"a": np.ones((4, 2)), "b": np.zeros((4, 3), np.float32)}, np.array([0, 1, 0, 1])
    data = Dataset(rows, labels, rows, labels, Classification())
    assert [part.dtype for part in data.train_inputs.values()] == [torch.float64, torch.float32]
    assert data.input_shape == {"a": [2], "b": [3]}


def test_two_examples_are_of_all_inputs() -> None:
    inputs, _ = two_examples(experiment.load(run_of("dict")))
    assert {name: len(part) for name, part in inputs.items()} == {"left": 2, "right": 2}
