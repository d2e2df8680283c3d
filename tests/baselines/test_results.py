"""results: the table of runs, and what is asked of it, beside numbers worked out by hand."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

from baselines import results
from baselines.errors import UserError
from helpers.runs import launch, metrics_in, write_run

ACCURACIES = {  # by strategy and seed
    ("fedavg", 0): [0.1, 0.5, 0.4],
    ("fedavg", 1): [0.1, 0.6, 0.7],
    ("fedavg", 2): [0.2, 0.3, 0.6],
    ("fedexp", 0): [0.1, 0.7, 0.5],
    ("fedexp", 1): [0.1, 0.6, 0.9],
    ("fedexp", 2): [0.2, 0.6, 0.9],
}


@pytest.fixture
def frame(tmp_path: Path) -> pd.DataFrame:
    for (strategy, seed), values in ACCURACIES.items():
        overrides = f"strategy={strategy} seed={seed} model=softmax"
        write_run(tmp_path / f"{strategy}{seed}", overrides, seed, values, "finished")
    return results.load(tmp_path)


def by_run(rows: pd.DataFrame) -> dict[tuple[str, int], float]:
    return {(row["strategy"], row["seed"]): row["value"] for row in rows.to_dict("records")}


def test_a_row_per_measurement_with_its_settings(frame: pd.DataFrame) -> None:
    assert list(frame) == ["strategy", "option.model", *results.MEASURED]
    assert results.settings(frame) == ["strategy", "option.model"]
    assert len(frame) == 18
    assert set(frame["option.model"]) == {"softmax"}
    assert frame.setting.tolist() == frame.strategy.tolist()  # a constant has no part in the name
    assert frame.node.isna().all()


def test_last_and_best(frame: pd.DataFrame) -> None:
    assert by_run(results.last(frame)) == {key: values[-1] for key, values in ACCURACIES.items()}
    assert by_run(results.best(frame)) == {key: max(values) for key, values in ACCURACIES.items()}
    assert by_run(results.best(frame, lower=True)) == {key: min(v) for key, v in ACCURACIES.items()}
    assert list(results.best(frame)["round"]) == [1, 2, 2, 1, 2, 2]


def test_rounds_to_a_target(frame: pd.DataFrame) -> None:
    actual = by_run(results.rounds_to(frame, "accuracy", 0.6))
    assert {key: value for key, value in actual.items() if value == value} == {
        ("fedavg", 1): 1,
        ("fedavg", 2): 2,
        ("fedexp", 0): 1,
        ("fedexp", 1): 1,
        ("fedexp", 2): 1,
    }
    assert len(actual) == 6  # one never gets there


def test_a_metric_that_no_run_has_is_a_mistake(frame: pd.DataFrame) -> None:
    for ask in (results.last, results.best, results.by_round, results.rounds_to):
        with pytest.raises(
            UserError, match=r"no run has measured test/acuracy; on test they have accuracy"
        ):
            ask(frame, "acuracy")
    assert results.has(frame, "accuracy")
    assert not results.has(frame, "accuracy", "validation")


def test_less_is_better_by_the_metrics_name(frame: pd.DataFrame) -> None:
    losses = frame.assign(metric="mae", value=-frame.value)
    assert by_run(results.best(losses, "mae")) == {key: -max(v) for key, v in ACCURACIES.items()}
    assert by_run(results.rounds_to(losses, "mae", -0.7))["fedexp", 0] == 1


def test_paired_differences(frame: pd.DataFrame) -> None:
    """0.1, 0.2, 0.3: the mean 0.2, s = 0.1, and t = 0.2 sqrt(3) / 0.1 with two degrees of freedom."""
    (row,) = results.paired(frame, "strategy", "fedavg").to_dict("records")
    half = stats.t.ppf(0.975, 2) * 0.1 / 3**0.5
    assert (row["setting"], row["baseline"], row["seeds"]) == ("fedexp", "fedavg", 3)
    assert [row["mean"], row["low"], row["high"]] == pytest.approx([0.2, 0.2 - half, 0.2 + half])
    assert row["p"] == pytest.approx(2 * stats.t.sf(0.2 * 3**0.5 / 0.1, 2))


def test_what_has_no_spread_has_no_interval(frame: pd.DataFrame) -> None:
    (row,) = results.paired(frame[frame.seed == 0], "strategy", "fedavg").to_dict("records")
    assert (row["seeds"], row["mean"]) == (1, pytest.approx(0.1))
    assert row["low"] != row["low"]
    assert row["p"] != row["p"]


@pytest.mark.parametrize("lead", [28 / 360, 0])
def test_a_tie_but_for_rounding_has_no_interval(lead: float, tmp_path: Path) -> None:
    """As many more of 360 examples in both seeds: as floats the differences are not equal."""
    ends = {28 / 360: (212 / 360, 228 / 360), 0: (184 / 360, math.nextafter(200 / 360, 1))}[lead]
    for seed, right in enumerate((184, 200)):
        write_run(tmp_path / f"a{seed}", "strategy=fedavg", seed, [right / 360], "finished")
        write_run(tmp_path / f"e{seed}", "strategy=fedexp", seed, [ends[seed]], "finished")
    assert ends[0] - 184 / 360 != ends[1] - 200 / 360
    (row,) = results.paired(results.load(tmp_path), "strategy", "fedavg").to_dict("records")
    assert (row["seeds"], row["mean"]) == (2, pytest.approx(lead, abs=1e-12))
    assert all(row[key] != row[key] for key in ("low", "high", "p"))


def test_pairs_are_of_the_same_second_option(tmp_path: Path) -> None:
    """A sweep of strategies and masks: each strategy is beside the baseline with its own mask."""
    for place, (strategy, mask, value) in enumerate(
        [("fedavg", "none", 0.1), ("fedavg", "and", 0.5), ("fedexp", "none", 0.2), ("fedexp", "and", 0.8)]
    ):
        write_run(tmp_path / str(place), f"strategy={strategy} mask={mask}", 0, [value], "finished")
    actual = results.paired(results.load(tmp_path), "strategy", "fedavg").set_index("setting")
    assert actual.baseline.to_dict() == {
        "fedexp, mask=none": "fedavg, mask=none",
        "fedexp, mask=and": "fedavg, mask=and",
    }
    assert actual["mean"].tolist() == pytest.approx([0.1, 0.3])


@pytest.mark.parametrize("baseline", ["1", "1.0", 1, 1.0])
def test_a_baseline_that_is_a_number_is_found_as_one(baseline: object, tmp_path: Path) -> None:
    """Tables print alpha=1, and a column of 0.1 and 1 holds 1.0."""
    for alpha in (0.1, 1):
        folder = tmp_path / str(alpha)
        write_run(folder, f"partitioner.alpha={alpha}", 0, [0.5 + alpha / 10], "finished")
        (folder / "config.yaml").write_text(f"partitioner: {{alpha: {alpha}}}\n")
    frame = results.load(tmp_path)
    assert frame["partitioner.alpha"].dtype == float
    (row,) = results.paired(frame, "partitioner.alpha", baseline).to_dict("records")
    assert (row["setting"], row["baseline"]) == ("partitioner.alpha=0.1", "partitioner.alpha=1")
    with pytest.raises(UserError, match=r"no run has partitioner.alpha=2 .* expected one of 0.1, 1.0"):
        results.paired(frame, "partitioner.alpha", 2)


@pytest.mark.parametrize("target", ["x", "0.6", None])
def test_a_target_that_is_no_number_is_told_so(target: object, frame: pd.DataFrame) -> None:
    with pytest.raises(ValueError, match=f"^target={target!r}: expected a number, as of test/accuracy$"):
        results.rounds_to(frame, "accuracy", target)  # type: ignore[arg-type]
    assert len(results.rounds_to(frame, "accuracy", np.float32(0.6))) == 6


def test_a_baseline_that_is_not_there_is_a_mistake(frame: pd.DataFrame) -> None:
    with pytest.raises(UserError, match=r"no run has strategy=fedprox .* expected one of fedavg, fedexp"):
        results.paired(frame, "strategy", "fedprox")


def test_a_mean_over_nodes_is_taken_once() -> None:
    """What each node measured stands beside the mean of it; models of a node each have none but ours."""
    rows = [("global", 0.5), ("node 0", 0.1), ("node 1", 0.3)]
    frame = pd.DataFrame(
        [(1, "node-test", model, "accuracy", value, 0, "all") for model, value in rows],
        columns=["round", "split", "model", "metric", "value", "seed", "setting"],
    )
    assert results.last(frame, split="node-test").value.tolist() == [0.5]
    assert results.last(frame[1:], split="node-test").value.tolist() == pytest.approx([0.2])


@pytest.mark.slow
def test_the_model_of_a_run_is_the_one_that_was_evaluated(tmp_path: Path) -> None:
    """Of FedExP it is a mean of iterates; here from the run's checkpoint."""
    arguments = ["strategy=fedexp", "rounds=2", "num_nodes=2", "model=softmax", "checkpoint_every=2"]
    assert launch(*arguments, f"hydra.run.dir={tmp_path}") == 0
    model = results.model(tmp_path)
    assert not model.training
    from sklearn.datasets import load_digits

    assert model(torch.zeros(1, *load_digits().images.shape[1:])[None]).shape == (1, 10)
    accuracy = metrics_in(tmp_path).query("split == 'test' and metric == 'accuracy'").value.iloc[-1]
    from baselines.experiment import experiment
    from clients.evaluation import evaluate

    setup = experiment.load("strategy=fedexp rounds=2 num_nodes=2 model=softmax")
    assert evaluate(model, setup.test_examples, setup.dataset.task)["accuracy"] == accuracy


@pytest.mark.slow
def test_a_run_that_kept_no_model_says_how_to(tmp_path: Path) -> None:
    assert launch("rounds=1", "num_nodes=2", "model=softmax", f"hydra.run.dir={tmp_path}/run") == 0
    with pytest.raises(UserError, match="run it with save=last or save=best"):
        results.model(tmp_path / "run")
    with pytest.raises(UserError, match="is not a run folder"):
        results.model(tmp_path)
