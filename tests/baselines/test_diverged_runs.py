"""A run that has diverged says so once, in one line, with a status of its own, and is over."""

import csv
import json
import math
from pathlib import Path

import pytest
import torch
from flwr.app import ArrayRecord

from baselines.engine import saved_model
from baselines.engine.evaluation import Evaluator
from baselines.engine.metrics import best_round, divergence_of
from baselines.errors import RunDiverged, UserError
from baselines.experiment import experiment
from baselines.experiment.experiment import Experiment
from baselines.experiment.validation import Logger
from helpers.runs import curve, launch, metrics_in, played

SETTING = "num_nodes=3 rounds=2 client.batch_size=null partitioner=iid"  # the model is an mlp
DIVERGING = f"{SETTING} client.optimizer.lr=1e30"  # one step of it is finite, and its outputs are not
LINE = (
    "the run has diverged: its test evaluation is not finite from round 1 on; the likely cause is a "
    "learning rate: lower client.optimizer.lr=1e+30"
)


def read_environment(folder: Path) -> dict[str, object]:
    environment: dict[str, object] = json.loads((folder / "environment.json").read_text())
    return environment


def test_it_ends_in_one_line_and_is_not_run_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [*DIVERGING.split(), "resume=true", f"hydra.run.dir={tmp_path}"]
    for first in (True, False):
        assert launch(*command) == 1
        out, err = capsys.readouterr()
        assert [line for line in err.splitlines() if line.startswith("error: ")] == [f"error: {LINE}"]
        assert "Traceback" not in err
        assert ("round 1/2" in out) == first
        assert ("finished already" in out) == (not first)
        written = (tmp_path / "environment.json").stat().st_mtime_ns
    assert read_environment(tmp_path)["status"] == "diverged"
    assert written == (tmp_path / "environment.json").stat().st_mtime_ns
    rows = metrics_in(tmp_path)
    assert math.isfinite(curve(rows, "test", "accuracy")[0])
    assert all(math.isnan(value) for value in curve(rows, "test", "accuracy")[1:])


@pytest.mark.slow
def test_a_sweep_goes_on_with_its_other_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = [
        *SETTING.split(),
        "client.optimizer.lr=1e30,0.1",
        "resume=true",
        f"hydra.sweep.dir={tmp_path}",
    ]
    for _ in range(2):
        assert launch("-m", *command) == 1
        assert capsys.readouterr().err.count(f"error: {LINE}") == 1
    ends = {json.loads(path.read_text())["status"] for path in tmp_path.rglob("environment.json")}
    assert ends == {"diverged", "finished"}


@pytest.mark.slow
def test_rounds_that_fail_since_it_has_diverged_are_no_other_failure(tmp_path: Path) -> None:
    with pytest.raises(RunDiverged, match="from round 1 on"):
        played(f"{DIVERGING} rounds=9", tmp_path)
    assert read_environment(tmp_path)["status"] == "diverged"
    assert metrics_in(tmp_path)["round"].max() < 9


@pytest.mark.slow
def test_rounds_that_fail_with_a_sound_model_are(tmp_path: Path) -> None:
    """No node sends numbers, and the model stays as it was: look at the nodes."""
    with pytest.raises(RuntimeError, match="2 rounds in a row failed"):
        played(f"{DIVERGING} client.batch_size=32", tmp_path)
    assert str(read_environment(tmp_path)["status"]).startswith("failed: ")


@pytest.mark.slow
def test_it_is_asked_after_in_the_nodes_own_evaluation_too(tmp_path: Path) -> None:
    with pytest.raises(RunDiverged, match="its node-test evaluation is not finite from round 1 on"):
        played(
            f"{DIVERGING} central_test=none node_test_fraction=0.2 evaluation.node_spread=true", tmp_path
        )
    rows = metrics_in(tmp_path)
    own = rows[rows.split.isin(["node-test", "site-test"]) & rows.metric.str.startswith(("loss", "acc"))]
    assert own.metric.str.startswith("accuracy").sum() > 6
    assert own.value.isna().all()


@pytest.mark.slow
@pytest.mark.parametrize("personal", ["ditto", "per_fedavg"])
def test_so_are_models_of_the_nodes_own(personal: str, tmp_path: Path) -> None:
    settings = f"{DIVERGING} personal={personal} node_test_fraction=0.2 central_test=none"
    with pytest.raises(RunDiverged, match="node-test evaluation"):
        played(settings, tmp_path)
    rows = metrics_in(tmp_path)
    assert rows[(rows.split == "node-test") & (rows.metric == "accuracy")].value.isna().all()


@pytest.mark.slow
def test_one_of_several_models_is_enough(tmp_path: Path) -> None:
    with pytest.raises(RunDiverged):
        played(f"{DIVERGING} strategy=local evaluation.per_class=true", tmp_path)
    rows = metrics_in(tmp_path)
    last = rows[(rows["round"] == 2) & (rows.split == "test")]
    assert set(last.model) == {"node0", "node1", "node2", "own group"}
    assert last.value.isna().all()
    with open(tmp_path / "per_class.csv") as file:
        assert {row["accuracy"] for row in csv.DictReader(file)} == {"nan"}


def test_a_node_that_has_diverged_is_right_about_nothing(tmp_path: Path) -> None:
    """Else nodes of NaN would be one group, which has learnt class 0."""
    setup = experiment.load(f"{SETTING} validation_size=100")
    lost = setup.model()
    lost.get_parameter("out.bias").data.fill_(torch.nan)
    right = Evaluator(setup).compute_correctness([ArrayRecord(lost.state_dict()), setup.initial_arrays()])
    assert right.any(1).tolist() == [False, True]


@pytest.mark.slow
def test_the_best_model_is_the_one_before(tmp_path: Path) -> None:
    with pytest.raises(RunDiverged):
        played(f"{DIVERGING} save=best early_stopping.patience=5 validation_size=50", tmp_path)
    (about,) = saved_model.descriptions(tmp_path).values()
    assert about["round"] == "0"
    assert best_round(tmp_path, "validation/accuracy") == 0


def test_a_round_whose_loss_is_infinite_is_never_the_best(tmp_path: Path) -> None:
    keeper = saved_model.ModelSaver(tmp_path, "best")
    arrays = {"global": experiment.load(SETTING).initial_arrays()}
    keeper.offer(0, arrays, {"loss": math.inf, "accuracy": 0.9})
    assert not saved_model.descriptions(tmp_path)
    keeper.offer(1, arrays, {"loss": 3.0, "accuracy": 0.1})
    keeper.offer(2, arrays, {"loss": math.inf, "accuracy": 0.9})
    (about,) = saved_model.descriptions(tmp_path).values()
    assert about["round"] == "1"
    rows = ["round,split,model,metric,value"]
    for server_round, (loss, accuracy) in enumerate([(1, 0.1), ("inf", 0.9), (1, 0.2)]):
        rows += [f"{server_round},test,a,loss,{loss}", f"{server_round},test,a,accuracy,{accuracy}"]
    (tmp_path / "metrics.csv").write_text("\n".join(rows) + "\n")
    assert best_round(tmp_path, "test/accuracy") == 2


def test_a_run_that_comes_back_has_not_diverged() -> None:
    def since(*losses: float) -> int | None:
        rows = [(k, "test", "global", "loss", loss) for k, loss in enumerate(losses)]
        rows += [(k, "train", "global", "loss", math.nan) for k in range(9)]
        divergence = divergence_of(rows)
        return None if divergence is None else divergence.server_round

    assert since(1, math.nan, 1) is None
    assert since(1, math.nan, 1, math.inf, math.nan) == 3
    assert since(math.nan) == 0
    assert since() is None


def test_a_metric_of_the_users_own_may_be_infinite_where_the_loss_is_finite() -> None:
    assert divergence_of([(1, "test", "a", "loss", 1.0), (1, "test", "a", "mape", math.inf)]) is None
    assert divergence_of([(1, "test", "a", "mae", 1.0), (1, "test", "a", "mape", math.inf)]) is None
    assert (
        divergence_of([(1, "test", "a", "mae", math.nan), (1, "test", "a", "mape", math.inf)]) is not None
    )


@pytest.mark.slow
def test_a_server_learning_rate_is_named_too(tmp_path: Path) -> None:
    with pytest.raises(RunDiverged, match=r"lower client.optimizer.lr=0.1 or step_size.eta=1e\+30$"):
        played(f"{SETTING} client.optimizer.lr=0.1 step_size.eta=1e30", tmp_path)


def test_damaged_metrics_are_named(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_text("round,split,model,metric,value\n1,test,a,loss,word\n")
    with pytest.raises(UserError, match="damaged"):
        best_round(tmp_path, "test/loss")


class Noted(Logger):
    """Notes how a run ended."""

    status = ""

    def begin(self, experiment: Experiment, folder: Path, last_round: int | None) -> None: ...

    def write(self, server_round: int, metrics: dict[str, float]) -> None: ...

    def end(self, status: str) -> None:
        self.status = status


@pytest.mark.slow
def test_loggers_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noted = Noted()
    monkeypatch.setattr(Experiment, "loggers", lambda _: [noted])
    with pytest.raises(RunDiverged):
        played(DIVERGING, tmp_path)
    assert noted.status == "diverged"


@pytest.mark.slow
def test_tensorboard_shows_it(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with pytest.raises(RunDiverged):
        played(f"{DIVERGING} rounds=1 logger=tensorboard", tmp_path)
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    (text,) = events.Tensors("status/text_summary")
    assert list(text.tensor_proto.string_val) == [b"diverged"]


@pytest.mark.slow
def test_mlflow_shows_it(tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow")
    uri = f"sqlite:///{tmp_path}/store.db"
    with pytest.raises(RunDiverged):
        played(f"{DIVERGING} rounds=1 logger=mlflow logger.mlflow.uri={uri}", tmp_path)
    client = mlflow.MlflowClient(uri)
    (run,) = client.search_runs([client.get_experiment_by_name("florilegium").experiment_id])
    assert (run.info.status, run.data.tags["status"]) == ("FAILED", "diverged")


@pytest.mark.slow
def test_ray_says_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = [*DIVERGING.split(), "runtime=ray", "runtime.cpus=2", f"hydra.run.dir={tmp_path}"]
    assert launch(*command) == 1
    assert f"error: {LINE}" in capsys.readouterr().err
    assert read_environment(tmp_path)["status"] == "diverged"
    assert all(math.isnan(value) for value in curve(metrics_in(tmp_path), "test", "accuracy")[1:])
