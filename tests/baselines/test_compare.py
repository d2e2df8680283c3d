"""python -m baselines.compare: a sweep's table and figure."""

from pathlib import Path

import pandas as pd
import pytest
from matplotlib.figure import Figure

from baselines import compare, results
from baselines.reports import comparison
from baselines.reports.tables import summarise
from helpers.runs import curve, launch, metrics_in, write_run


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a sweep over two strategies and two seeds."""
    path = tmp_path_factory.mktemp("sweep")
    choices = ["strategy=fedavg,fedexp", "seed=0,1", "rounds=2", "num_nodes=3", "model=softmax"]
    assert launch("-m", *choices, f"hydra.sweep.dir={path}") == 0
    return path


@pytest.mark.slow
def test_a_sweep_is_a_folder_of_runs(sweep: Path) -> None:
    assert len(list(sweep.rglob("metrics.csv"))) == 4


@pytest.mark.slow
def test_compare_prints_a_table_and_draws_a_figure(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare.main([str(sweep)]) == 0
    out = capsys.readouterr().out
    assert (sweep / "comparison.png").read_bytes().startswith(b"\x89PNG")
    assert str(sweep / "comparison.png") in out
    lines = [line for line in out.splitlines() if "FedAvg" in line or "FedExP" in line]
    assert len(lines) == 2
    assert all(line.count("±") == 3 for line in lines)


@pytest.mark.slow
def test_compare_averages_over_seeds(sweep: Path) -> None:
    frame = results.load(sweep)
    assert set(frame.setting) == {"fedavg", "fedexp"}
    row = summarise(frame).set_index("setting").loc["fedavg"]
    folders = [path.parent for path in sweep.rglob("metrics.csv") if "fedavg" in path.parent.name]
    a, b = (100 * curve(metrics_in(folder), "test", "accuracy")[-1] for folder in folders)
    assert a != b
    expected = f"{(a + b) / 2:.1f} ± {abs(a - b) / 2**0.5:.1f} %"
    assert list(row[["seeds", "rounds", "last accuracy"]]) == ["2", "2", expected]


def test_a_damaged_record_of_a_run_is_a_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path / "run", "seed=0", 0, [0.1], "finished")
    (tmp_path / "run" / "environment.json").write_text('{"overrides": ')
    assert compare.main([str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {tmp_path}/run/environment.json is damaged: ")


def test_compare_says_which_runs_did_not_finish(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path / "0", "seed=0", 0, [0.1, 0.5, 0.9], "finished")
    write_run(tmp_path / "1", "seed=1", 1, [0.1, 0.5], "failed: no memory")
    assert compare.main([str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert f"not finished, counted up to its last round (failed: no memory): {tmp_path / '1'}" in printed
    assert f"): {tmp_path / '0'}" not in printed
    assert "| all | 2 (1 not finished) | 1 to 2 |" in (tmp_path / "comparison.md").read_text()


def test_compare_speaks_of_the_runs_in_its_table_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path / "0", "mask=and", 0, [0.1, 0.9], "finished")
    write_run(tmp_path / "1", "mask=none", 0, [0.1], "interrupted")
    assert compare.main([str(tmp_path), "--best", "1"]) == 0
    assert "interrupted" not in capsys.readouterr().out


def test_compare_takes_single_runs_and_another_target(tmp_path: Path) -> None:
    write_run(tmp_path / "run", "seed=0", 0, [0.1, 0.5], "finished")
    target = tmp_path / "new" / "figure.svg"
    assert compare.main([str(tmp_path / "run"), "--figure", str(target)]) == 0
    assert target.read_text().startswith("<?xml")
    assert target.with_suffix(".md").is_file()


@pytest.mark.parametrize("content", ["nothing", "stray", "started"])
def test_compare_on_nothing_is_a_mistake(
    content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No folder of a run, a metrics.csv of something else, a run that has not measured anything yet."""
    if content != "nothing":
        (tmp_path / "metrics.csv").write_text("round,split,model,metric,value\n")
    if content == "started":
        (tmp_path / "environment.json").write_text('{"overrides": "", "seed": 0}')
    assert compare.main([str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert str(tmp_path) in line


def test_a_figure_that_cannot_be_written_is_a_mistake(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path / "run", "seed=0", 0, [0.1, 0.5], "finished")
    (tmp_path / "file").touch()
    assert compare.main([str(tmp_path / "run"), "--figure", f"{tmp_path}/file/x.png"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"error: [Errno 17] File exists: '{tmp_path}/file'"


@pytest.mark.parametrize("name", ["figure", "figure.md", "figure.doc"])
def test_a_figure_of_unknown_kind_is_a_mistake(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare.main([str(tmp_path), "--figure", f"{tmp_path}/{name}"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"error: --figure {tmp_path}/{name}: expected a name that ends in .png, .pdf or .svg"


@pytest.fixture
def own_metric(tmp_path: Path) -> Path:
    """Return a sweep of a regression: its metric is the user's own, and there is no accuracy."""
    for strategy, errors in {
        "fedavg": ([4.0, 2.0], [4.0, 3.0]),
        "fedexp": ([4.0, 1.0], [4.0, 2.5]),
    }.items():
        for seed, values in enumerate(errors):
            run = tmp_path / f"{strategy}{seed}"
            write_run(run, f"strategy={strategy}", seed, values, "finished")
            metrics = run / "metrics.csv"
            metrics.write_text(metrics.read_text().replace("accuracy", "mae"))
    return tmp_path


def test_a_metric_of_the_users_own_is_in_table_and_figure(
    own_metric: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    drawn: list[str] = []
    monkeypatch.setattr(
        Figure, "savefig", lambda self, *_, **__: drawn.extend(a.get_ylabel() for a in self.axes)
    )
    assert compare.main([str(own_metric), "--rounds-to", "2", "--metric", "mae", "--best", "1"]) == 0
    assert drawn == ["test mae"]
    table = (own_metric / "comparison.md").read_text()
    assert table.splitlines()[0] == "| setting | seeds | rounds | last mae | best mae | rounds to mae 2 |"
    assert table.splitlines()[2:] == ["| FedExP | 2 | 1 | 1.75 ± 1.06 | 1.75 ± 1.06 | 1 (1 of 2) |"]
    assert compare.main([str(own_metric)]) == 0  # also without naming it
    assert "last mae" in capsys.readouterr().out


def test_tables_for_a_paper(own_metric: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The best of a column is bold, the least where less is better; the CSV has all digits and settings."""
    arguments = ["--latex", "--csv", "--paired", "fedavg", "--label", "fedexp=FedExP & co"]
    assert compare.main([str(own_metric), *arguments]) == 0
    assert "FedExP & co - FedAvg" in capsys.readouterr().out
    tex = (own_metric / "comparison.tex").read_text()
    assert r"FedExP \& co & 2 & 1 & \textbf{1.75 $\pm$ 1.06} & \textbf{1.75 $\pm$ 1.06} \\" in tex
    assert r"FedAvg & 2 & 1 & 2.50 $\pm$ 0.71 & 2.50 $\pm$ 0.71 \\" in tex
    assert r"FedExP \& co $-$ FedAvg & 2 & $-$0.75 & $-$3.93 to +2.43 &" in tex
    assert tex.count(r"\begin{tabular}") == tex.count(r"\end{tabular}") == 2
    numbers = pd.read_csv(own_metric / "comparison.csv").set_index("setting").loc["FedExP & co"]
    assert (numbers["strategy"], numbers["seeds"]) == ("fedexp", 2)
    assert numbers["last mae, mean"] == 1.75
    assert numbers["last mae, std"] == pytest.approx(1.5 / 2**0.5)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--metric", "f1"], "--metric f1: no run has measured it; expected one of mae"),
        (["--paired", "fedprox"], "no run has strategy=fedprox and mae: expected one of fedavg, fedexp"),
        (["--paired", "mask=none"], "no run has mask=none and mae: expected one of none"),
        (["--label", "fedavg"], "--label fedavg: expected OLD=NEW"),
        (
            ["--label", "fedprox=x"],
            "--label fedprox=x: no setting is called fedprox; there are fedavg; fedexp",
        ),
        (["--label", "fedavg=fedexp"], "--label gives two settings the same name: choose others"),
        (
            ["--x", "round", "--x", "seconds"],
            "--x: the figure has one; add --html PAGE, which has a plot by each",
        ),
        (["--x", "bytes"], "--x bytes: FedAvg has not counted them; run it with count_bytes=true"),
    ],
)
def test_a_wish_that_cannot_be_met_is_a_mistake(
    arguments: list[str], message: str, own_metric: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare.main([str(own_metric), *arguments]) == 2
    assert capsys.readouterr().err == f"error: {message}\n"


def test_labels_are_renamed_by_whole_by_part_and_by_key() -> None:
    frame = pd.DataFrame(
        {"setting": ["fedavg, client.optimizer.lr=0.1", "fedexp, client.optimizer.lr=0.1"]}
    )
    wishes = ["client.optimizer.lr=lr", "fedavg=FedAvg", "fedexp, lr=0.1=best"]
    assert comparison.rename_settings(frame, wishes).setting.tolist() == ["FedAvg, lr=0.1", "best"]
