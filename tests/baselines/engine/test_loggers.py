"""TensorBoard and MLflow get what metrics.csv gets, once each, also when a run is resumed."""

import re
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from flwr.app import Context, Message

from baselines.engine import loggers
from baselines.errors import UserError
from baselines.experiment.experiment import Experiment
from helpers.runs import App, metrics_in, played

SETTING = "num_nodes=3 rounds=5 model=softmax checkpoint_every=2"


def interrupted_in_round_4(app: App) -> App:
    def interrupted(message: Message, context: Context) -> Message:
        config = message.content.config_records.get("config", {})
        if message.metadata.message_type == "train" and config["server-round"] == 4:
            raise KeyboardInterrupt
        return app(message, context)

    return interrupted


def resumed(logger: str, folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Run, interrupt and resume; return the curves of metrics.csv by name."""
    with pytest.raises(KeyboardInterrupt):
        played(f"{SETTING} {logger}", folder, interrupted_in_round_4)
    played(f"{SETTING} {logger} resume=true", folder)
    return curves(metrics_in(folder))


def curves(rows: pd.DataFrame) -> dict[str, list[tuple[int, float]]]:
    found: dict[str, list[tuple[int, float]]] = {}
    for row in rows.to_dict("records"):
        name = f"{row['split']}/{row['model']}/{row['metric']}"
        found.setdefault(name, []).append((int(row["round"]), float(row["value"])))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("every", [2, 5])
def test_tensorboard(every: int, tmp_path: Path) -> None:
    """Also of a run that was killed before its first checkpoint, and begins anew."""
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    written = resumed(f"logger=tensorboard checkpoint_every={every}", tmp_path)
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert {name for name in events.Tags()["scalars"] if not name.endswith("seconds")} == set(written)
    for name, points in written.items():
        found = events.Scalars(name)
        assert [event.step for event in found] == [server_round for server_round, _ in points]
        assert [event.value for event in found] == pytest.approx([value for _, value in points], rel=1e-6)


@pytest.mark.slow
def test_mlflow(tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow")
    uri = f"sqlite:///{tmp_path}/store.db"
    written = resumed(f"logger=mlflow logger.mlflow.uri={uri}", tmp_path)
    client = mlflow.MlflowClient(uri)
    (run,) = client.search_runs([client.get_experiment_by_name("florilegium").experiment_id])
    assert run.info.status == "FINISHED"
    assert run.data.params["client.optimizer.lr"] == "0.05"
    for name, points in written.items():
        history = client.get_metric_history(run.info.run_id, name)
        assert [(point.step, point.value) for point in history] == points


@pytest.mark.slow
def test_wandb(tmp_path: Path) -> None:
    """Offline: what it would send stands in its files, a record for each call."""
    pytest.importorskip("wandb")
    written = resumed("logger=wandb logger.wandb.mode=offline", tmp_path)
    files = [path.read_bytes() for path in sorted(tmp_path.glob("wandb/offline-run-*/*.wandb"))]
    assert len(files) == 2  # before and after the interruption, one run
    assert len({path.name for path in tmp_path.glob("wandb/offline-run-*/*.wandb")}) == 1
    assert b"client.optimizer.lr" in files[0]
    for name, points in written.items():
        found = [float(text) for file in files for text in values_of(name.encode(), file)]
        twice = [value for _, value in points for _ in ("history", "summary")]
        assert found == pytest.approx(twice)


def values_of(name: bytes, file: bytes) -> list[bytes]:
    """Return the values of a metric in a file of W&B's, where a name is followed by its value in JSON."""
    return re.findall(re.escape(name) + rb"\x82\x01.([-+.0-9e]+)", file)


def test_the_jobs_of_a_sweep_log_to_one_mlflow_store_beside_their_folders(tmp_path: Path) -> None:
    """Also jobs that begin at the same moment, as with the joblib launcher."""
    mlflow = pytest.importorskip("mlflow")
    with ProcessPoolExecutor(3, mp_context=get_context("spawn")) as pool:
        options = [f"num_nodes=2 rounds=1 model=softmax logger=mlflow seed={seed}" for seed in range(3)]
        list(pool.map(played, options, [tmp_path / str(seed) for seed in range(3)]))
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path}/mlflow.db")
    (experiment,) = client.search_experiments(filter_string="name = 'florilegium'")
    found = client.search_runs([experiment.experiment_id])
    assert {run.data.params["seed"] for run in found} == {"0", "1", "2"}


@pytest.mark.slow
def test_without_its_package_a_logger_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(name: str) -> Any:
        raise ImportError(name)

    played("num_nodes=3 rounds=1", tmp_path)
    before = (tmp_path / "metrics.csv").read_bytes()
    monkeypatch.setattr(loggers, "import_module", absent)
    for name in ("tensorboard", "mlflow", "wandb"):
        with pytest.raises(UserError, match=rf"pip install -e '.\[{name}\]'"):
            played(f"num_nodes=3 rounds=1 logger={name} resume=false", tmp_path)
    assert (tmp_path / "metrics.csv").read_bytes() == before


def test_two_loggers_can_be_chosen(tmp_path: Path) -> None:
    chosen = Experiment("logger=[tensorboard,mlflow]").cfg.logger
    assert list(chosen) == ["tensorboard", "mlflow"]


def test_none_is_the_default() -> None:
    assert "logger" not in Experiment("").cfg
