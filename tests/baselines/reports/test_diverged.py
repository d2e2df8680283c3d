"""A run that has diverged is nan wherever its setting is spoken of, and nothing is claimed of it."""

from pathlib import Path

import pandas as pd
import pytest
from runs import METRICS, write_run

from baselines import compare, results
from baselines.reports import curves, summary
from baselines.reports.shown import Shown

NAN = float("nan")
ENDS = {"fedavg": [0.4, 0.41, 0.42], "fedexp": [0.5, 0.6, NAN]}  # by seed


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    for strategy, ends in ENDS.items():
        for seed, end in enumerate(ends):
            run = tmp_path / f"{strategy}{seed}"
            write_run(run, f"strategy={strategy}", seed, [0.1, end], "finished")
    return tmp_path


def test_it_is_not_shown_as_it_was_before() -> None:
    rows = [
        (0, "test", "a", "loss", 2.0),
        (1, "test", "a", "loss", NAN),
        (1, "test", "b", "loss", 1.0),
    ]
    frame = pd.DataFrame(rows, columns=METRICS[:-1]).assign(seed=0, setting="all", run="r")
    assert summary.summarise(frame)["last loss"].item() == "nan"
    other = frame[frame["round"] == 0].assign(seed=1)
    assert summary.summarise(pd.concat([frame, other]))["last loss"].item() == "nan ± nan"


def test_a_pair_with_it_has_no_difference(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (row,) = results.paired(results.load(sweep), "strategy", "fedavg").to_dict("records")
    assert row["seeds"] == 3
    assert all(row[key] != row[key] for key in ("mean", "low", "high", "p"))
    assert compare.main([str(sweep), "--paired", "fedavg"]) == 0
    assert "| fedexp - fedavg | 3 | nan | - | - |" in (sweep / "comparison.md").read_text()


def test_its_curve_ends_where_it_diverged(sweep: Path) -> None:
    found = curves.statistics(results.load(sweep), Shown("test", "accuracy"), "round").loc["fedexp"]
    assert found["mean"].tolist() == pytest.approx([0.1, NAN], nan_ok=True)
    assert found["std"].tolist() == pytest.approx([0.0, NAN], nan_ok=True, abs=1e-12)


def test_it_is_never_the_best(sweep: Path) -> None:
    """Not in bold, not in front, and the CSV has no mean of the others."""
    assert compare.best(results.load(sweep), 2).setting.unique().tolist() == ["fedavg", "fedexp"]
    assert compare.main([str(sweep), "--latex", "--csv", "--metric", "accuracy"]) == 0
    assert r"fedexp & 3 & 1 & nan $\pm$ nan \% &" in (sweep / "comparison.tex").read_text()
    numbers = pd.read_csv(sweep / "comparison.csv").set_index("setting")
    assert numbers["last accuracy, mean"].isna().tolist() == [False, True]
    assert numbers["last accuracy, std"].isna().tolist() == [False, True]
    last, _ = summary.columns(results.load(sweep), ("accuracy",))
    assert last.best() is None  # one that has a mean is no choice


def test_a_run_without_any_number_has_no_best_round(tmp_path: Path) -> None:
    for seed, values in enumerate([[0.1, 0.5], [NAN, NAN]]):
        write_run(tmp_path / str(seed), "", seed, values, "finished")
    frame = results.load(tmp_path)
    assert results.best(frame).value.tolist() == pytest.approx([0.5, NAN], nan_ok=True)
    assert summary.summarise(frame)["best accuracy"].item() == "nan ± nan %"
