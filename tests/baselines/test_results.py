"""What a run leaves on disk, and what is made of it."""

import json
from pathlib import Path

import pandas as pd
import pytest
import yaml
from runs import curve, launch, metrics_in, played

from baselines import compare, figures, summary

SETTING = "num_nodes=4 rounds=3 nodes_per_round=3 node_test_fraction=0.2 strategy=fedexp"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a finished run."""
    path = tmp_path_factory.mktemp("run") / "made" / "here"
    assert launch(*SETTING.split(), f"hydra.run.dir={path}") == 0
    return path


def test_metrics_are_tidy_and_complete(folder: Path) -> None:
    rows = pd.read_csv(folder / "metrics.csv")
    assert list(rows) == ["round", "split", "model", "metric", "value"]
    assert not rows.isna().any(axis=None)
    assert not rows.duplicated(["round", "split", "model", "metric"]).any()
    splits = {t: set(own.split) for t, own in rows.groupby("round")}
    assert splits == {0: {"test"}} | {t: {"train", "test", "node-test"} for t in (1, 2, 3)}
    found = {key: set(own.metric) for key, own in rows.groupby(["split", "model"])}
    assert found == {
        ("test", "average"): {"loss", "accuracy"},
        ("node-test", "average"): {"loss", "accuracy"},
        ("train", "global"): {
            "replies",
            "failed",
            "step_size",
            "loss",
            "accuracy",
            "local_steps",
            "learning_rate",
            "client_seconds",
            "seconds",
        },
    }
    assert curve(rows, "train", "replies") == [3.0] * 3
    assert curve(rows, "train", "failed") == [0.0] * 3
    assert min(curve(rows, "train", "step_size")) >= 1


def test_a_row_at_round_r_is_measured_after_r_rounds(folder: Path, tmp_path: Path) -> None:
    rows, shorter = metrics_in(folder), played(f"{SETTING} rounds=1", tmp_path)
    pd.testing.assert_frame_equal(rows[rows["round"] <= 1], shorter, check_exact=True)
    loss = curve(rows, "test", "loss")
    assert loss == sorted(loss, reverse=True)
    assert loss[0] == pytest.approx(2.303, abs=0.1)  # ln 10 before training


def test_everything_else_is_there(folder: Path) -> None:
    cfg = yaml.safe_load((folder / "config.yaml").read_text())
    assert (cfg["num_nodes"], cfg["strategy"]["_target_"]) == (4, "strategies.FedExP")
    assert cfg["strategy"]["step_size"] == cfg["step_size"]
    assert "${" not in (folder / "config.yaml").read_text()
    environment = json.loads((folder / "environment.json").read_text())
    assert (environment["overrides"], environment["seed"]) == (SETTING, 0)
    assert environment["status"] == "finished"
    assert environment["wall_seconds"] > 0
    assert set(environment["versions"]) >= {"python", "flwr", "torch", "numpy"}
    assert set(environment["hardware"]) == {"processor", "cores", "device", "gpu"}
    assert {"git_commit", "source_hash", "started"} <= set(environment)
    assert (folder / "figures" / "metrics.png").read_bytes().startswith(b"\x89PNG")


def test_the_same_seed_gives_the_same_numbers(folder: Path, tmp_path: Path) -> None:
    again = played(SETTING, tmp_path / "again")
    other = played(f"{SETTING} seed=1", tmp_path / "other")
    pd.testing.assert_frame_equal(metrics_in(folder), again, check_exact=True)
    assert curve(again, "test", "loss") != curve(other, "test", "loss")


def test_evaluates_every_so_often_and_in_the_end(tmp_path: Path) -> None:
    rows = played(f"{SETTING} rounds=5 evaluate_every=2", tmp_path)
    assert rows[rows.split == "test"]["round"].unique().tolist() == [0, 2, 4, 5]
    assert rows[rows.split == "node-test"]["round"].unique().tolist() == [2, 4, 5]
    assert rows[rows.split == "train"]["round"].unique().tolist() == [1, 2, 3, 4, 5]


def test_fedprox_with_mu_zero_is_fedavg_and_with_another_is_not(tmp_path: Path) -> None:
    setting = "num_nodes=4 rounds=2 client.local_epochs=2"
    fedavg, zero, one = (
        played(f"{setting} strategy={strategy}", tmp_path / f"run{i}")
        for i, strategy in enumerate(("fedavg", "fedprox strategy.mu=0", "fedprox strategy.mu=1"))
    )
    pd.testing.assert_frame_equal(fedavg, zero, check_exact=True)
    assert curve(fedavg, "test", "loss") != curve(one, "test", "loss")


def test_a_model_for_every_group_has_its_own_rows(tmp_path: Path) -> None:
    rows = played("num_nodes=3 rounds=1 strategy=local node_test_fraction=0.2", tmp_path)
    after = rows[(rows["round"] == 1) & (rows.split == "test")]
    assert set(after.model) == {"node0", "node1", "node2"}
    assert set(rows[rows.split == "node-test"].model) == {"own group"}


def test_runs_without_any_override(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shortest command there is; thirty rounds also reach the traced gradient."""
    monkeypatch.chdir(tmp_path)
    assert launch() == 0
    (metrics,) = tmp_path.glob("outputs/*/*/metrics.csv")
    rows = metrics_in(metrics.parent)
    assert max(rows["round"]) == 30
    assert sum(curve(rows, "train", "failed")) == 0
    assert curve(rows, "test", "accuracy")[-1] > 0.9


# ---- a sweep, compared ---------------------------------------------------------------------------


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
    curves = compare.read(compare.find_runs([sweep]))
    assert set(curves) == {"fedavg", "fedexp"}
    row = summary.summarise(curves).set_index("setting").loc["fedavg"]
    folders = [path.parent for path in sweep.rglob("metrics.csv") if "fedavg" in path.parent.name]
    a, b = (100 * curve(metrics_in(folder), "test", "accuracy")[-1] for folder in folders)
    assert a != b
    expected = f"{(a + b) / 2:.1f} ± {abs(a - b) / 2**0.5:.1f} %"
    assert list(row[["seeds", "rounds", "last accuracy"]]) == ["2", "2", expected]


def test_a_summary_has_the_columns_that_something_was_measured_for(folder: Path) -> None:
    rows = pd.read_csv(folder / "metrics.csv").assign(seed=0)
    table = summary.summarise({"all": rows})
    own = curve(rows, "node-test", "accuracy")[-1]
    assert list(table["node accuracy"]) == [f"{100 * own:.1f} %"]
    losses = rows[(rows.split == "test") & (rows.metric == "loss")]
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
    found = compare.read(compare.find_runs([tmp_path]))
    seeds = {label: set(rows.seed) for label, rows in found.items()}
    assert seeds == {"mask=and": {0, 1}, "mask default": {2}}


def test_the_band_is_the_spread_over_seeds_of_the_mean_over_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {(0, "a"): 0.0, (0, "b"): 0.4, (1, "a"): 0.2, (1, "b"): 1.0}  # means 0.2 and 0.6
    rows = [(1, "test", model, "accuracy", value, seed) for (seed, model), value in values.items()]
    curves = {"": pd.DataFrame(rows, columns=["round", "split", "model", "metric", "value", "seed"])}
    monkeypatch.setattr(figures.plt, "close", lambda figure: None)
    figures.draw(curves, tmp_path / "figure.png")
    (axis,) = figures.plt.gcf().axes
    monkeypatch.undo()
    figures.plt.close()
    assert axis.lines[0].get_ydata() == pytest.approx([0.4])
    band = axis.collections[0].get_paths()[0].vertices[:, 1]
    assert (min(band), max(band)) == pytest.approx((0.4 - 0.08**0.5, 0.4 + 0.08**0.5))


def test_compare_says_which_runs_did_not_finish(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path / "0", "seed=0", 0, [0.1, 0.5, 0.9], "finished")
    write_run(tmp_path / "1", "seed=1", 1, [0.1, 0.5], "failed: no memory")
    assert compare.main([str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert f"counted as far as it came (failed: no memory): {tmp_path / '1'}" in told
    assert f"): {tmp_path / '0'}" not in told
    assert "| all | 2 | 1 to 2 |" in (tmp_path / "comparison.md").read_text()


def test_compare_takes_single_runs_and_another_target(folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "new" / "figure.png"
    assert compare.main([str(folder), "--figure", str(target)]) == 0
    assert target.is_file()


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
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert compare.main([str(folder), "--figure", f"{tmp_path}/file/x.png"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"error: [Errno 17] File exists: '{tmp_path}/file'"


def test_what_has_diverged_is_not_shown_as_it_was_before() -> None:
    rows = [
        (0, "test", "a", "loss", 2.0),
        (1, "test", "a", "loss", float("nan")),
        (1, "test", "b", "loss", 1.0),
    ]
    frame = pd.DataFrame(rows, columns=["round", "split", "model", "metric", "value"]).assign(seed=0)
    assert summary.summarise({"all": frame})["last loss"].item() == "nan"
    other = frame[frame["round"] == 0].assign(seed=1)
    assert summary.summarise({"all": pd.concat([frame, other])})["last loss"].item().startswith("nan")
