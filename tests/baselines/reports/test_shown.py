"""Which metric tables, pairs, counts and figures are of."""

from pathlib import Path

import pytest
from matplotlib.figure import Figure

from baselines import compare
from helpers.runs import write_run


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that the axes of all drawn figures are added to."""
    titles: list[str] = []

    def save(figure: Figure, target: Path, **_: object) -> None:
        titles.extend(axis.get_ylabel() for axis in figure.axes)
        Path(target).touch()

    monkeypatch.setattr(Figure, "savefig", save)
    return titles


def sweep(folder: Path, split: str, metric: str) -> None:
    """Write runs that have measured nothing else."""
    for strategy, ends in {"fedavg": [0.3, 0.5], "fedexp": [0.2, 0.1]}.items():
        for seed, end in enumerate(ends):
            run = folder / f"{strategy}{seed}"
            write_run(run, f"strategy={strategy}", seed, [0.1, end], "finished")
            metrics = run / "metrics.csv"
            metrics.write_text(
                metrics.read_text().replace("test,global,accuracy", f"{split},global,{metric}")
            )


@pytest.mark.parametrize("metric", ["accuracy", "loss"])
def test_without_a_test_set_it_is_the_nodes_own(
    metric: str, tmp_path: Path, drawn: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """As with central_test=none, and with sites that have data of their own."""
    sweep(tmp_path, "node-test", metric)
    wishes = ["--paired", "fedavg", "--rounds-to", "0.45", "--best", "1"]
    assert compare.main([str(tmp_path), *wishes]) == 0
    out = capsys.readouterr().out
    assert f"last node test {metric}, paired by seed" in out
    assert drawn == [f"node test {metric}" + " (%)" * (metric == "accuracy")]
    assert f"figure: {tmp_path}/comparison.png" in out
    comparison, paired = (tmp_path / "comparison.md").read_text().split("\n\n")
    heading, _, row = comparison.splitlines()
    if metric == "accuracy":
        assert heading == "| setting | seeds | rounds | node accuracy | rounds to 0.45 |"
        assert row == "| FedAvg | 2 | 1 | 40.0 ± 14.1 % | 1 (1 of 2) |"
        assert "| FedExP - FedAvg | 2 | -25.00 points |" in paired
    else:
        assert heading == "| setting | seeds | rounds | last node-test loss | rounds to loss 0.45 |"
        assert row == "| FedExP | 2 | 1 | 0.150 ± 0.071 | 0 ± 0 |"
        assert "| FedExP - FedAvg | 2 | -0.25 |" in paired


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        (["--paired", "fedavg"], "--paired fedavg: no run has a test metric to be compared by"),
        (["--rounds-to", "0.5"], "--rounds-to 0.5: no run has a test metric to reach it"),
    ],
)
def test_without_any_test_metric_such_a_wish_is_a_mistake(
    wish: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep(tmp_path, "train", "loss")
    assert compare.main([str(tmp_path), *wish]) == 2
    assert capsys.readouterr().err == f"error: {message}\n"


def test_a_figure_is_named_where_one_was_drawn(
    tmp_path: Path, drawn: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    sweep(tmp_path, "train", "loss")
    assert compare.main([str(tmp_path)]) == 0
    assert "figure" not in capsys.readouterr().out
    assert drawn == []
    assert compare.main([str(tmp_path), "--metric", "train/loss"]) == 0
    assert f"figure: {tmp_path}/comparison.png" in capsys.readouterr().out


def test_a_metric_that_comes_twice_is_shown_once(tmp_path: Path, drawn: list[str]) -> None:
    sweep(tmp_path, "test", "accuracy")
    twice = ["--metric", "accuracy", "--metric", "accuracy", "--metric", "test/accuracy"]
    assert compare.main([str(tmp_path), *twice]) == 0
    assert drawn == ["test accuracy (%)"]
    heading = (tmp_path / "comparison.md").read_text().splitlines()[0]
    assert heading == "| setting | seeds | rounds | last accuracy | best accuracy |"


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("name", "wish", "best"),
    [
        ("nll", [], 0.5),
        ("cross_entropy", [], 0.5),
        ("explained_variance", [], 0.9),
        ("accuracy_variance", [], 0.5),
        ("regret", [], 0.9),
        ("regret", ["--lower", "regret"], 0.5),
        ("regret", ["--lower", "test/regret"], 0.5),
    ],
)
def test_the_best_of_a_metric_goes_by_its_name_or_as_told(
    name: str, wish: list[str], best: float, tmp_path: Path
) -> None:
    for strategy, values in {"fedavg": (0.9, 0.7), "fedexp": (0.6, 0.5)}.items():
        write_run(tmp_path / strategy, f"strategy={strategy}", 0, list(values), "finished")
        metrics = tmp_path / strategy / "metrics.csv"
        metrics.write_text(metrics.read_text().replace("accuracy", name))
    wishes = [
        str(tmp_path),
        "--metric",
        name,
        "--rounds-to",
        "0.65",
        "--best",
        "1",
        *wish,
        "--figure",
        f"{tmp_path}/comparison.png",
    ]
    assert compare.main(wishes) == 0
    (row,) = (tmp_path / "comparison.md").read_text().splitlines()[2:]
    strategy, last, reached = ("FedExP", 0.5, 0) if best == 0.5 else ("FedAvg", 0.7, 0)
    assert row == f"| {strategy} | 1 | 1 | {last} | {best} | {reached} |"


def test_a_metric_that_nobody_measured_has_no_direction(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path / "a", "strategy=fedavg", 0, [0.5], "finished")
    assert compare.main([str(tmp_path), "--lower", "acuracy"]) == 2
    assert capsys.readouterr().err == "error: --lower acuracy: no run has measured it\n"
