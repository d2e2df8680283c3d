"""A run that has diverged is nan wherever its setting is spoken of, and nothing is claimed of it."""

from math import isfinite
from pathlib import Path

import pandas as pd
import pytest

from baselines import compare, results
from baselines.errors import UserError
from baselines.reports import comparison, curves
from baselines.reports.runs import Panel
from baselines.reports.tables import summarise, summary_columns
from helpers.runs import METRICS, write_run

NAN = float("nan")
ENDS = {"fedavg": [0.4, 0.41, 0.42], "fedexp": [0.5, 0.6, NAN]}  # by seed


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    for strategy, ends in ENDS.items():
        for seed, end in enumerate(ends):
            run = tmp_path / f"{strategy}{seed}"
            status = "finished" if isfinite(end) else "diverged"
            write_run(run, f"strategy={strategy}", seed, [0.1, end], status)
    return tmp_path


def test_it_is_not_shown_as_it_was_before() -> None:
    rows = [
        (0, "test", "a", "loss", 2.0),
        (1, "test", "a", "loss", NAN),
        (1, "test", "b", "loss", 1.0),
    ]
    frame = pd.DataFrame(rows, columns=METRICS[:-1]).assign(seed=0, setting="all", run="r")
    assert summarise(frame.assign(status="diverged"))["last loss"].item() == "diverged"
    assert summarise(frame)["last loss"].item() == "nan"
    other = frame[frame["round"] == 0].assign(seed=1)
    assert summarise(pd.concat([frame, other]))["last loss"].item() == "nan ± nan"


def test_a_pair_with_it_has_no_difference(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (row,) = results.paired(results.load(sweep), "strategy", "fedavg").to_dict("records")
    assert row["seeds"] == 3
    assert all(row[key] != row[key] for key in ("mean", "low", "high", "p"))
    assert compare.main([str(sweep), "--paired", "fedavg"]) == 0
    text = (sweep / "comparison.md").read_text()
    assert "| FedExP - FedAvg | 3 | diverged | - | - |" in text
    assert "| FedExP | 3 (1 diverged) | 1 | diverged |" in text
    message = f"diverged, and never the best: {sweep}/fedexp2"
    assert message in capsys.readouterr().out


def test_its_curve_ends_where_it_diverged(sweep: Path) -> None:
    actual = curves.statistics(results.load(sweep), Panel("test", "accuracy"), "round").loc["fedexp"]
    assert actual["mean"].tolist() == pytest.approx([0.1, NAN], nan_ok=True)
    assert actual["std"].tolist() == pytest.approx([0.0, NAN], nan_ok=True, abs=1e-12)


def test_it_is_never_the_best(sweep: Path) -> None:
    """Not in bold, not in front, and the CSV has no mean of the others."""
    assert comparison.best(results.load(sweep), 2).setting.unique().tolist() == ["fedavg"]
    assert compare.main([str(sweep), "--latex", "--csv", "--metric", "accuracy"]) == 0
    text = (sweep / "comparison.tex").read_text()
    assert r"FedExP & 3 (1 diverged) & 1 & diverged &" in text
    assert r"\textbf" not in text  # not its best round, either: there is one setting left
    numbers = pd.read_csv(sweep / "comparison.csv").set_index("setting")
    assert numbers["last accuracy, mean"].isna().tolist() == [False, True]
    assert numbers["last accuracy, std"].isna().tolist() == [False, True]
    last, _ = summary_columns(results.load(sweep), ("accuracy",))
    assert last.best() is None  # one that has a mean is no choice
    assert numbers["diverged"].tolist() == [0, 1]
    with pytest.raises(UserError, match="each setting has a run that has diverged"):
        comparison.best(results.load(sweep / "fedexp2"), 1)


def test_a_run_without_any_number_has_no_best_round(tmp_path: Path) -> None:
    for seed, (values, status) in enumerate([([0.1, 0.5], "finished"), ([NAN, NAN], "diverged")]):
        write_run(tmp_path / str(seed), "", seed, values, status)
    frame = results.load(tmp_path)
    assert results.best(frame).value.tolist() == pytest.approx([0.5, NAN], nan_ok=True)
    assert summarise(frame)["best accuracy"].item() == "diverged"


@pytest.mark.parametrize("lost", ["nan", "inf"])
def test_an_older_run_that_hides_its_divergence_is_left_out_by_name(tmp_path: Path, lost: str) -> None:
    """Its status is "finished", and a model of NaN has an accuracy; the loss tells."""
    run = tmp_path / "old"
    write_run(run, "", 0, [], "finished")
    lines = ["0,test,global,loss,2", f"1,test,global,loss,{lost}", "1,test,global,accuracy,0.885"]
    (run / "metrics.csv").write_text("\n".join(["round,split,model,metric,value", *lines]) + "\n")
    reason = "environment.json says finished, but the test evaluation is not finite from round 1 on"
    with pytest.raises(UserError, match=f"old/{reason}: run it again"):
        results.load(tmp_path)
    write_run(tmp_path / "sound", "", 1, [0.1, 0.5], "finished")
    with pytest.warns(UserWarning, match=reason):
        frame = results.load(tmp_path)
    assert results.last(frame).value.tolist() == [0.5]


def test_a_metric_that_is_not_finite_where_the_loss_is_makes_no_divergence(tmp_path: Path) -> None:
    write_run(tmp_path / "run", "", 0, [], "finished")
    lines = ["round,split,model,metric,value", "1,test,global,loss,0.5", "1,test,global,mape,inf"]
    (tmp_path / "run" / "metrics.csv").write_text("\n".join(lines) + "\n")
    assert set(results.load(tmp_path).status) == {"finished"}


def test_the_page_says_so(sweep: Path) -> None:
    pytest.importorskip("plotly")
    assert compare.main([str(sweep), "--html", str(sweep / "page.html")]) == 0
    text = (sweep / "page.html").read_text()
    assert "<td>3 (1 diverged)</td>" in text
    assert text.count("<td>diverged</td>") == 2  # the setting's mean, and how the run ended
