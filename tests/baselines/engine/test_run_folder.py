"""What a run leaves on disk."""

import json
from pathlib import Path

import pandas as pd
import pytest
import yaml

from baselines import results
from baselines.engine.loggers import Progress
from baselines.engine.metrics import read_objective
from baselines.errors import UserError
from helpers.runs import curve, launch, metrics_in, played

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
    actual = {key: set(own.metric) for key, own in rows.groupby(["split", "model"])}
    assert actual == {
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
            "server_seconds",
        },
    }
    assert curve(rows, "train", "replies") == [3.0] * 3
    assert curve(rows, "train", "failed") == [0.0] * 3
    assert min(curve(rows, "train", "step_size")) >= 1


@pytest.mark.slow
def test_a_row_at_round_r_is_measured_after_r_rounds(folder: Path, tmp_path: Path) -> None:
    rows, shorter = metrics_in(folder), played(f"{SETTING} rounds=1", tmp_path)
    pd.testing.assert_frame_equal(rows[rows["round"] <= 1], shorter, check_exact=True)
    loss = curve(rows, "test", "loss")
    assert loss == sorted(loss, reverse=True)
    assert loss[0] == pytest.approx(2.303, abs=0.1)  # ln 10 before training


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_folder_that_cannot_be_written_into_is_a_mistake_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    for folder, why in (("file/run", "Not a directory"), ("a" * 300, "File name too long")):
        path = tmp_path / folder
        with pytest.raises(UserError) as caught:
            played(f"{SETTING} rounds=1", path)
        assert str(caught.value) == f"cannot write into {path} ({why}): choose another folder"
    (tmp_path / "locked" / ".lock").mkdir(parents=True)  # as in a folder that is another's, for all users
    with pytest.raises(UserError, match=r"locked .Is a directory.: choose another"):
        played(f"{SETTING} rounds=1", tmp_path / "locked")


def test_the_same_seed_gives_the_same_numbers(folder: Path, tmp_path: Path) -> None:
    again = played(SETTING, tmp_path / "again")
    other = played(f"{SETTING} seed=1", tmp_path / "other")
    pd.testing.assert_frame_equal(metrics_in(folder), again, check_exact=True)
    assert curve(again, "test", "loss") != curve(other, "test", "loss")


@pytest.mark.slow
def test_evaluates_every_so_often_and_in_the_end(tmp_path: Path) -> None:
    rows = played(f"{SETTING} rounds=5 evaluate_every=2", tmp_path)
    assert rows[rows.split == "test"]["round"].unique().tolist() == [0, 2, 4, 5]
    assert rows[rows.split == "node-test"]["round"].unique().tolist() == [2, 4, 5]
    assert rows[rows.split == "train"]["round"].unique().tolist() == [1, 2, 3, 4, 5]


@pytest.mark.slow
def test_fedprox_with_mu_zero_is_fedavg_and_with_another_is_not(tmp_path: Path) -> None:
    setting = "num_nodes=4 rounds=2 client.local_epochs=2"
    fedavg, zero, one = (
        played(f"{setting} strategy={strategy}", tmp_path / f"run{i}")
        for i, strategy in enumerate(("fedavg", "fedprox strategy.mu=0", "fedprox strategy.mu=1"))
    )
    pd.testing.assert_frame_equal(fedavg, zero, check_exact=True)
    assert curve(fedavg, "test", "loss") != curve(one, "test", "loss")


@pytest.mark.slow
def test_a_model_for_every_group_has_its_own_rows(tmp_path: Path) -> None:
    rows = played("num_nodes=3 rounds=1 strategy=local node_test_fraction=0.2", tmp_path)
    after = rows[(rows["round"] == 1) & (rows.split == "test")]
    assert set(after.model) == {"node0", "node1", "node2", "own group"}
    assert set(rows[rows.split == "node-test"].model) == {"own group"}


@pytest.mark.slow
def test_a_group_counts_as_its_nodes_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What every reader takes for the run's accuracy is what a node gets, on average."""
    monkeypatch.setattr(Progress, "show", lambda self, r, metrics: losses.append(metrics["accuracy"]))
    losses: list[float] = []
    grouped = (
        "strategy=local strategy._target_=strategies.Grouped +strategy.groups={large:[0,1,2],small:[3]}"
    )
    rows = played(f"num_nodes=4 rounds=2 partitioner=pathological {grouped}", tmp_path)
    last = rows[(rows["round"] == 2) & (rows.split == "test") & (rows.metric == "accuracy")]
    accuracy = dict(zip(last.model, last.value, strict=True))
    expected = (3 * accuracy["large"] + accuracy["small"]) / 4
    assert abs(accuracy["large"] - accuracy["small"]) > 0.01, "or the two means are one"
    assert accuracy["own group"] == pytest.approx(expected, rel=1e-12)
    assert losses[-1] == accuracy["own group"]
    assert read_objective(tmp_path, "test/accuracy") == accuracy["own group"]
    assert results.by_round(rows.assign(seed=0, setting="all")).value.iloc[-1] == accuracy["own group"]


@pytest.mark.slow
def test_runs_without_any_override(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shortest command there is; thirty rounds also reach the traced gradient."""
    monkeypatch.chdir(tmp_path)
    assert launch() == 0
    (metrics,) = tmp_path.glob("outputs/*/*/metrics.csv")
    rows = metrics_in(metrics.parent)
    assert max(rows["round"]) == 30
    assert sum(curve(rows, "train", "failed")) == 0
    assert curve(rows, "test", "accuracy")[-1] > 0.9


def test_a_run_that_writes_over_another_leaves_nothing_of_it(tmp_path: Path) -> None:
    small = "num_nodes=2 rounds=2 model=softmax"
    kept = "save=last checkpoint_every=1 checkpoint_keep=2 evaluation.per_class=true"
    played(f"{small} {kept}", tmp_path)
    assert {"model.safetensors", "confusion.csv", "per_class.csv"} <= {
        path.name for path in tmp_path.iterdir()
    }
    assert len(list(tmp_path.glob("checkpoint/*.pt"))) == 3
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "a.safetensors").touch()
    (tmp_path / "notes.txt").touch()  # somebody's own
    played(f"{small} resume=false", tmp_path)
    files = {path.name for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".png"}
    assert files - {".lock"} == {"metrics.csv", "config.yaml", "environment.json", "notes.txt"}
