"""TensorBoard and MLflow get what metrics.csv gets, once each, also when a run is resumed."""

import re
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from flwr.app import Context, Message

from baselines.engine import loggers
from baselines.engine.environment import read_environment
from baselines.engine.metrics import OWN_GROUP
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
    points: dict[str, list[tuple[int, float]]] = {}
    for row in rows.to_dict("records"):
        name = f"{row['split']}/{row['metric']}"
        points.setdefault(name, []).append((int(row["round"]), float(row["value"])))
    return points


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
        actual = events.Scalars(name)
        assert [event.step for event in actual] == [server_round for server_round, _ in points]
        assert [event.value for event in actual] == pytest.approx([value for _, value in points], rel=1e-6)
    texts = {name.removesuffix("/text_summary") for name in events.Tags()["tensors"]}
    assert {"identity", "status"} <= texts


@pytest.mark.slow
def test_tensorboard_has_a_table_of_hyperparameters(tmp_path: Path) -> None:
    """Of all runs of a sweep, with the options by which they differ as columns, and numbers as numbers."""
    pytest.importorskip("tensorboard")
    from tensorboard.plugins.hparams import api_pb2, plugin_data_pb2

    read = event_file_reader()
    options = f"{SETTING} logger=tensorboard strategy=fedexp client.optimizer.lr=0.5"
    with pytest.raises(KeyboardInterrupt):
        played(options, tmp_path, interrupted_in_round_4)
    assert "_hparams_/session_end_info" not in read(tmp_path)
    played(f"{options} resume=true", tmp_path)
    actual = {
        tag: plugin_data_pb2.HParamsPluginData.FromString(data) for tag, data in read(tmp_path).items()
    }
    assert "_hparams_/experiment" not in actual  # it would fix the columns of all runs
    chosen = actual["_hparams_/session_start_info"].session_start_info.hparams
    assert chosen["strategy"].string_value == "fedexp"
    assert chosen["client.optimizer.lr"].number_value == 0.5
    assert chosen["deterministic"].string_value == "False"
    ended = actual["_hparams_/session_end_info"].session_end_info.status
    assert ended == api_pb2.Status.Value("STATUS_SUCCESS")


def event_file_reader() -> Callable[[Path], dict[str, bytes]]:
    """Return what reads the plugin data of HPARAMS by tag."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    def read(folder: Path) -> dict[str, bytes]:
        events = EventAccumulator(str(folder / "tensorboard"))
        events.Reload()
        return dict(events.PluginTagToContent("hparams"))

    return read


@pytest.mark.slow
def test_mlflow(tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow")
    uri = f"sqlite:///{tmp_path}/store.db"
    statuses: list[str] = []
    client = mlflow.MlflowClient(uri)

    def noted(app: App) -> App:
        def answered(message: Message, context: Context) -> Message:
            statuses.append(only_run(client).info.status)
            return app(message, context)

        return answered

    options = f"{SETTING} logger=mlflow logger.mlflow.uri={uri}"
    with pytest.raises(KeyboardInterrupt):
        played(options, tmp_path, interrupted_in_round_4)
    assert only_run(client).info.status == "KILLED"
    played(f"{options} resume=true", tmp_path, noted)
    written = curves(metrics_in(tmp_path))
    run = only_run(client)
    assert set(statuses) == {"RUNNING"}
    assert run.info.status == "FINISHED"
    assert run.info.run_name == SETTING.removesuffix(" checkpoint_every=2")
    assert run.data.params["client.optimizer.lr"] == "0.05"
    assert run.data.params["strategy"] == "fedavg"
    account = read_environment(tmp_path)
    assert run.data.tags["identity"] == account["identity"]
    assert run.data.tags.get("mlflow.source.git.commit") == account["git_commit"]
    for name, points in written.items():
        history = client.get_metric_history(run.info.run_id, name)
        assert [(point.step, point.value) for point in history] == points


def only_run(client: Any) -> Any:
    (run,) = client.search_runs([client.get_experiment_by_name("florilegium").experiment_id])
    return run


@pytest.mark.slow
def test_wandb(tmp_path: Path) -> None:
    """Offline: what it would send stands in its files, a record for each call."""
    pytest.importorskip("wandb")
    written = resumed("logger=wandb logger.wandb.mode=offline", tmp_path)
    files = [path.read_bytes() for path in sorted(tmp_path.glob("wandb/offline-run-*/*.wandb"))]
    assert len(files) == 2  # before and after the interruption, one run
    assert len({path.name for path in tmp_path.glob("wandb/offline-run-*/*.wandb")}) == 1
    assert b"client.optimizer.lr" in files[0]
    assert f"identity {read_environment(tmp_path)['identity']}".encode() in files[0]
    assert b"num_nodes=3 rounds=5 model=softmax" in files[0]
    for name, points in written.items():
        actual = [float(text) for file in files for text in values_of(name.encode(), file)]
        twice = [value for _, value in points for _ in ("history", "summary")]
        assert actual == pytest.approx(twice)


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
    actual = client.search_runs([experiment.experiment_id])
    assert {run.data.params["seed"] for run in actual} == {"0", "1", "2"}


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


@dataclass
class Noted:
    """A logger that keeps what it is given."""

    metrics: dict[tuple[str, int], float] = field(default_factory=dict)

    def begin(self, experiment: Experiment, folder: Path, last_round: int | None) -> None: ...

    def write(self, server_round: int, metrics: dict[str, float]) -> None:
        new = {(name, server_round): value for name, value in metrics.items()}
        assert not new.keys() & self.metrics.keys()
        self.metrics |= new

    def end(self, status: str) -> None: ...


@pytest.mark.parametrize("strategy", ["fedavg", "fedexp", "local"])
def test_a_metric_has_one_name_whatever_a_method_averages(
    strategy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of several models it is the mean over the nodes, as the table has it; each of them has its own."""
    noted = Noted()
    monkeypatch.setattr(Experiment, "loggers", lambda _: [noted])
    options = "num_nodes=3 rounds=2 model=softmax node_test_fraction=0.2 evaluation.node_spread=true"
    rows = played(f"{options} evaluation.per_node=true strategy={strategy}", tmp_path)
    names = {name for name, _ in noted.metrics}
    shared = {"test/accuracy", "test/loss", "node-test/accuracy", "train/loss", "site-train/node 0/loss"}
    assert shared <= names
    tested = rows[(rows.split == "test") & (rows.metric == "accuracy")]
    for server_round, own in tested.groupby("round"):
        several = own.value[own.model == OWN_GROUP] if len(own) > 1 else own.value
        assert noted.metrics["test/accuracy", int(str(server_round))] == several.item()
    models = {name for name in names if re.fullmatch("test/.+/accuracy", name)}
    assert bool(models) == (strategy == "local")


@pytest.mark.parametrize(
    ("overrides", "name"),
    [
        (
            "strategy=fedexp logger=[tensorboard,mlflow] logger.mlflow.uri=null seed=1",
            "strategy=fedexp seed=1",
        ),
        ("resume=true checkpoint_every=2 data_root=/tmp logger=mlflow", "folder"),
    ],
)
def test_a_runs_name_is_what_decides_its_numbers(overrides: str, name: str, tmp_path: Path) -> None:
    assert loggers.run_name(Experiment(overrides), tmp_path / "folder") == name


@pytest.mark.parametrize("count", [0, 1, 100, 101])
def test_batches_hold_every_item_once(count: int) -> None:
    batches = list(loggers.split_batches(list(range(count)), 100))
    assert [item for batch in batches for item in batch] == list(range(count))
    assert all(1 <= len(batch) <= 100 for batch in batches)


def test_two_loggers_can_be_chosen(tmp_path: Path) -> None:
    chosen = Experiment("logger=[tensorboard,mlflow]").cfg.logger
    assert list(chosen) == ["tensorboard", "mlflow"]


def test_none_is_the_default() -> None:
    assert "logger" not in Experiment("").cfg
