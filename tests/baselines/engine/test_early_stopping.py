"""Validation and early stopping: a run ends where its own curve says, whole or resumed."""

from pathlib import Path

import pandas as pd
import pytest

from baselines.engine.environment import read_environment
from baselines.engine.metrics import best_round, read_objective, should_stop
from baselines.errors import UserError
from baselines.experiment import experiment
from baselines.experiment.validation import EarlyStopping
from helpers.runs import curve, launch, lines_in, metrics_in, played

SETTING = "num_nodes=3 partitioner=iid model=softmax validation_size=200 client.optimizer.lr=0.5"
STOP = "rounds=40 early_stopping.patience=2"


def written(values: dict[int, float], folder: Path, name: str = "accuracy") -> Path:
    lines = [f"{number},validation,global,{name},{value}" for number, value in values.items()]
    (folder / "metrics.csv").write_text("\n".join(["round,split,model,metric,value", *lines]) + "\n")
    return folder


def test_the_best_round_by_hand(tmp_path: Path) -> None:
    written({0: 0.1, 1: 0.5, 2: 0.7, 3: 0.7, 4: float("nan"), 5: 0.6}, tmp_path)
    assert best_round(tmp_path, "validation/accuracy") == 2  # the first of equals
    assert best_round(tmp_path, "validation/loss") is None
    stop = EarlyStopping(2, "validation/accuracy")
    assert [should_stop(tmp_path, stop, number) for number in (3, 4, 5)] == [False, True, True]
    assert not should_stop(tmp_path, EarlyStopping(None, "validation/accuracy"), 1000)
    written({0: 3.0, 1: 2.0, 2: 2.5}, tmp_path, "loss")
    assert best_round(tmp_path, "validation/loss") == 1


def test_a_run_stops_at_its_best_round_and_the_patience_after_it(tmp_path: Path) -> None:
    whole = played(f"{SETTING} rounds=12 objective=validation/accuracy", tmp_path / "whole")
    stopped = played(f"{SETTING} {STOP}", tmp_path / "stopped")
    values = curve(whole, "validation", "accuracy")
    best = read_environment(tmp_path / "stopped")["best_round"]
    last = int(stopped["round"].max())
    assert last == best + 2 < 12
    assert max(values[: last + 1]) == values[best] > max(values[:best])
    timeless = ~whole.metric.str.contains("seconds")
    same = stopped[~stopped.metric.str.contains("seconds")].reset_index(drop=True)
    beginning = whole[timeless & (whole["round"] <= last)].reset_index(drop=True)
    pd.testing.assert_frame_equal(same, beginning, check_exact=True)
    assert read_objective(tmp_path / "stopped", "validation/accuracy", best) == values[best]


@pytest.mark.slow
def test_validation_is_of_the_examples_set_aside(tmp_path: Path) -> None:
    plain = played(f"{SETTING} rounds=1", tmp_path / "plain")
    assert "validation" not in set(plain.split)  # nobody asks
    with_validation = played(f"{SETTING} rounds=1 objective=validation/loss", tmp_path / "asked")
    added = with_validation.split == "validation"
    pd.testing.assert_frame_equal(
        with_validation[~added & ~with_validation.metric.str.contains("seconds")].reset_index(drop=True),
        plain[~plain.metric.str.contains("seconds")].reset_index(drop=True),
        check_exact=True,
    )
    accuracy = curve(with_validation, "validation", "accuracy")[-1]
    assert (accuracy * 200) == pytest.approx(round(accuracy * 200))
    setup = experiment.load(f"{SETTING} rounds=1")
    held = set(setup.node_data.validation_rows.tolist())
    assert len(held) == 200
    assert not held & {row for train, test in setup.partitions for row in (*train, *test)}


@pytest.mark.slow
def test_a_resumed_run_stops_where_the_whole_one_does(tmp_path: Path) -> None:
    stopped = played(f"{SETTING} {STOP} checkpoint_every=2", tmp_path / "stopped")
    folder = tmp_path / "resumed"
    played(f"{SETTING} rounds=2 early_stopping.patience=2 checkpoint_every=2", folder)
    resumed = played(f"{SETTING} {STOP} checkpoint_every=2 resume=true", folder)
    timeless = [frame[~frame.metric.str.contains("seconds")] for frame in (stopped, resumed)]
    pd.testing.assert_frame_equal(timeless[0], timeless[1], check_exact=True)


@pytest.mark.slow
def test_a_stopped_run_that_is_asked_for_more_rounds_is_over(tmp_path: Path) -> None:
    """As one of so many rounds in one go would be; so is one that was killed after its last checkpoint."""
    setting = f"{SETTING} {STOP} checkpoint_every=1 resume=true"
    stopped = lines_in_run(setting, tmp_path)
    assert lines_in_run(f"{setting} rounds=50", tmp_path) == stopped
    account = tmp_path / "environment.json"
    account.write_text(account.read_text().replace('"finished"', '"running"'))
    assert lines_in_run(f"{setting} rounds=50", tmp_path) == stopped


def lines_in_run(setting: str, folder: Path) -> list[str]:
    assert launch(*setting.split(), f"hydra.run.dir={folder}") == 0
    return lines_in(folder)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("validation/acuracy", "is not measured: expected validation/accuracy or"),
        ("test/acuracy", "is not measured: expected test/accuracy or"),
        ("train/los", "was never measured"),  # what the nodes tell is known in the end alone
    ],
    ids=["validation", "test", "train"],
)
def test_a_metric_that_is_never_measured_ends_no_run_as_if_it_were_finished(
    name: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=f"early_stopping.metric={name} {message}"):
        played(f"{SETTING} {STOP} early_stopping.metric={name}", tmp_path)


def test_a_run_that_diverges_has_been_measured(tmp_path: Path) -> None:
    written({0: float("nan"), 1: float("nan")}, tmp_path)
    assert should_stop(tmp_path, EarlyStopping(1, "validation/accuracy"), 1)


@pytest.mark.slow
def test_the_best_and_the_last_model_of_a_stopped_run_are_kept(tmp_path: Path) -> None:
    for how in ("best", "last"):
        played(f"{SETTING} {STOP} save={how}", tmp_path / how)
        assert (tmp_path / how / "model.safetensors").exists()
    assert len(metrics_in(tmp_path / "last")) == len(metrics_in(tmp_path / "best"))


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ("early_stopping.patience=0", "early_stopping.patience=0 is out of range"),
        ("early_stopping.patience=1.5", "early_stopping.patience=1.5 is out of range"),
        ("early_stopping.patience=3", "early_stopping.metric=validation/accuracy with validation_size=0"),
        ("early_stopping.patience=3 early_stopping.metric=best", "early_stopping.metric=best is unknown"),
        ("objective=validation/accuracy", "objective=validation/accuracy with validation_size=0"),
        ("objective=node-test/accuracy", "objective=node-test/accuracy with node_test_fraction=0"),
    ],
)
def test_what_nobody_measures_is_refused(overrides: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        _ = experiment.load(overrides).cfg


@pytest.mark.slow
def test_without_a_test_set_the_validation_examples_still_decide(tmp_path: Path) -> None:
    setting = "num_nodes=3 rounds=4 model=softmax central_test=none node_test_fraction=0.2"
    rows = played(f"{setting} validation_size=200 early_stopping.patience=4", tmp_path)
    assert len(curve(rows, "validation", "accuracy")) == 5  # with the model before training
    assert len(curve(rows, "node-test", "accuracy")) == 4
    assert not (rows.split == "test").any()
