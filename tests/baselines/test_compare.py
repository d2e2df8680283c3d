"""python -m baselines.compare: a sweep's table and figure, and which runs are one setting."""

import json
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pandas as pd
import pytest
from matplotlib.figure import Figure
from rich.console import Console
from runs import curve, launch, metrics_in

from baselines import compare, figures, settings, summary

COLUMNS = ["round", "split", "model", "metric", "value", "seed"]


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a sweep over two strategies and two seeds."""
    path = tmp_path_factory.mktemp("sweep")
    choices = ["strategy=fedavg,fedexp", "seed=0,1", "rounds=2", "num_nodes=3", "model=softmax"]
    assert launch("-m", *choices, f"hydra.sweep.dir={path}") == 0
    return path


def test_a_sweep_is_a_folder_of_runs(sweep: Path) -> None:
    assert len(list(sweep.rglob("metrics.csv"))) == 4


def test_compare_prints_a_table_and_draws_a_figure(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare.main([str(sweep)]) == 0
    out = capsys.readouterr().out
    assert (sweep / "comparison.png").read_bytes().startswith(b"\x89PNG")
    assert str(sweep / "comparison.png") in out
    lines = [line for line in out.splitlines() if "fedavg" in line or "fedexp" in line]
    assert len(lines) == 2
    assert all(line.count("±") == 3 for line in lines)


def test_compare_averages_over_seeds(sweep: Path) -> None:
    curves = settings.read(compare.find_runs([sweep]))
    assert set(curves) == {"fedavg", "fedexp"}
    row = summary.summarise(curves).set_index("setting").loc["fedavg"]
    folders = [path.parent for path in sweep.rglob("metrics.csv") if "fedavg" in path.parent.name]
    a, b = (100 * curve(metrics_in(folder), "test", "accuracy")[-1] for folder in folders)
    assert a != b
    expected = f"{(a + b) / 2:.1f} ± {abs(a - b) / 2**0.5:.1f} %"
    assert list(row[["seeds", "rounds", "last accuracy"]]) == ["2", "2", expected]


def test_a_summary_has_the_columns_that_something_was_measured_for() -> None:
    values = [("test", "loss", 0.5), ("test", "accuracy", 0.875), ("node-test", "accuracy", 0.25)]
    measured = [(1, split, "global", metric, value, 0) for split, metric, value in values]
    rows = pd.DataFrame(measured, columns=COLUMNS)
    table = summary.summarise({"all": rows})
    assert list(table["node accuracy"]) == ["25.0 %"]
    losses = rows[rows.metric == "loss"]
    assert list(summary.summarise({"all": losses})) == ["setting", "seeds", "rounds", "last loss"]
    mixed = summary.summarise({"all": rows, "loss alone": losses})
    assert list(mixed["last accuracy"])[1] == "-"


def write_run(folder: Path, overrides: str, seed: int, accuracies: list[float], status: str) -> None:
    """Write a run's results by hand."""
    folder.mkdir()
    environment = {"overrides": overrides, "seed": seed, "status": status}
    (folder / "environment.json").write_text(json.dumps(environment))
    rows = [f"{r},test,global,accuracy,{value}" for r, value in enumerate(accuracies)]
    (folder / "metrics.csv").write_text("\n".join(["round,split,model,metric,value", *rows]) + "\n")


def test_what_decides_no_number_makes_no_other_setting(tmp_path: Path) -> None:
    beside = "resume=true checkpoint_every=2 data_root=/a 'hydra.searchpath=[/mine]' logger.mlflow.uri=/"
    write_run(tmp_path / "0", "mask=and seed=0", 0, [0.1], "finished")
    write_run(tmp_path / "1", f"mask=and seed=1 {beside}", 1, [0.1], "finished")
    write_run(tmp_path / "2", "seed=2", 2, [0.1], "finished")
    found = settings.read(compare.find_runs([tmp_path]))
    seeds = {label: set(rows.seed) for label, rows in found.items()}
    assert seeds == {"mask=and": {0, 1}, "mask default": {2}}


def test_a_value_written_in_another_way_makes_no_other_setting(tmp_path: Path) -> None:
    for place, written in enumerate(("0.01", "1e-2")):
        choices = ["client.optimizer.lr=" + written, f"seed={place}", "rounds=1", "num_nodes=2"]
        assert launch(*choices, "model=softmax", f"hydra.run.dir={tmp_path}/{place}") == 0
    (rows,) = settings.read(compare.find_runs([tmp_path])).values()
    assert set(rows.seed) == {0, 1}


def test_an_options_file_that_has_changed_makes_another_setting(tmp_path: Path) -> None:
    """The overrides are the same; what differs is named, and neither is the other's second seed."""
    mine = tmp_path / "mine" / "client" / "mine.yaml"
    mine.parent.mkdir(parents=True)
    for place, rate in enumerate((0.01, 0.1, 0.1)):
        mine.write_text(f"defaults: [sgd]\noptimizer: {{lr: {rate}}}\n")
        choices = ["client=mine", f"seed={place}", "rounds=1", "num_nodes=2", "model=softmax"]
        own = f"hydra.run.dir={tmp_path}/{place}"
        assert launch("--config-dir", str(mine.parents[1]), *choices, own) == 0
    found = settings.read(compare.find_runs([tmp_path]))
    seeds = {label: set(rows.seed) for label, rows in found.items()}
    assert seeds == {"client.optimizer.lr=0.01": {0}, "client.optimizer.lr=0.1": {1, 2}}


def test_a_damaged_record_of_a_run_is_a_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path / "run", "seed=0", 0, [0.1], "finished")
    (tmp_path / "run" / "environment.json").write_text('{"overrides": ')
    assert compare.main([str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {tmp_path}/run/environment.json is damaged: ")


def test_the_band_is_the_spread_over_seeds_of_the_mean_over_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {(0, "a"): 0.0, (0, "b"): 0.4, (1, "a"): 0.2, (1, "b"): 1.0}  # means 0.2 and 0.6
    rows = [(1, "test", model, "accuracy", value, seed) for (seed, model), value in values.items()]
    curves = {"": pd.DataFrame(rows, columns=COLUMNS)}
    for figure in figure_of(curves, tmp_path, monkeypatch):
        (axis,) = figure.axes
        assert axis.lines[0].get_ydata() == pytest.approx([0.4])
        band = axis.collections[0].get_paths()[0].vertices[:, 1]
        assert (min(band), max(band)) == pytest.approx((0.4 - 0.08**0.5, 0.4 + 0.08**0.5))


def test_names_without_room_are_numbered_and_no_number_is_lost() -> None:
    names = [f"client.optimizer.lr=0.{digit}, partitioner.concentration=0.{digit}" for digit in "123"]
    rows = pd.DataFrame([(1, "test", "global", "accuracy", 0.5, 0)], columns=COLUMNS)
    table = summary.summarise(dict.fromkeys(names, rows))
    printed = {}
    for width in (60, 200):
        console = Console(width=width, file=StringIO())
        summary.show(table, console)
        printed[width] = console.file.getvalue()  # type: ignore[attr-defined]
        assert printed[width].count("50.0 %") == 6
        assert all(name in printed[width] for name in names)
    assert f"  3  {names[2]}" in printed[60]
    assert "  3  " not in printed[200]


def figure_of(
    curves: dict[str, pd.DataFrame], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Figure]:
    """Yield the figure while it is open."""
    with monkeypatch.context() as patched:
        patched.setattr(figures.plt, "close", lambda figure: None)
        figures.draw(curves, tmp_path / "figure.png")
    figures.plt.gcf().canvas.draw()
    yield figures.plt.gcf()
    figures.plt.close()


def test_the_legend_is_within_the_figure_and_beside_no_curve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = pd.DataFrame([(t, "test", "global", "loss", 1.0 / t, 0) for t in (1, 2)], columns=COLUMNS)
    for length in (3, 30, 60):
        for figure in figure_of({f"{k:0{length}}": rows for k in range(12)}, tmp_path, monkeypatch):
            (legend,), (axis,) = figure.legends, figure.axes
            box, panel = legend.get_window_extent(), axis.get_tightbbox()
            assert box.x0 >= 0
            assert box.y0 >= 0
            assert box.x1 <= figure.bbox.x1
            assert box.y1 <= panel.y0
            assert panel.height > 200  # at 100 dots per inch
            assert len({(line.get_color(), line.get_linestyle()) for line in axis.lines}) == 12


@pytest.mark.parametrize(("steps", "panels"), [((1.0, 1.0), 1), ((1.0, 1.5), 2)])
def test_a_step_size_that_never_changes_has_no_panel(
    steps: tuple[float, float], panels: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = [(1, "test", "global", "loss", 1.0, 0)]
    measured += [(t, "train", "global", "step_size", step, 0) for t, step in enumerate(steps)]
    for figure in figure_of({"": pd.DataFrame(measured, columns=COLUMNS)}, tmp_path, monkeypatch):
        assert len(figure.axes) == panels


def test_compare_says_which_runs_did_not_finish(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path / "0", "seed=0", 0, [0.1, 0.5, 0.9], "finished")
    write_run(tmp_path / "1", "seed=1", 1, [0.1, 0.5], "failed: no memory")
    assert compare.main([str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert f"counted as far as it came (failed: no memory): {tmp_path / '1'}" in told
    assert f"): {tmp_path / '0'}" not in told
    assert "| all | 2 | 1 to 2 |" in (tmp_path / "comparison.md").read_text()


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


def test_what_has_diverged_is_not_shown_as_it_was_before() -> None:
    rows = [
        (0, "test", "a", "loss", 2.0),
        (1, "test", "a", "loss", float("nan")),
        (1, "test", "b", "loss", 1.0),
    ]
    frame = pd.DataFrame(rows, columns=COLUMNS[:-1]).assign(seed=0)
    assert summary.summarise({"all": frame})["last loss"].item() == "nan"
    other = frame[frame["round"] == 0].assign(seed=1)
    assert summary.summarise({"all": pd.concat([frame, other])})["last loss"].item().startswith("nan")
