"""What bad input gets: exit status 2 and one line that says what is wrong and what to do."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from hydra.errors import MissingConfigException

from baselines import run
from baselines.experiment import preflight
from baselines.experiment.messages import describe_mistake
from baselines.experiment.overrides import ROOT
from helpers.runs import metrics_in


def launch(monkeypatch: pytest.MonkeyPatch, folder: Path, *overrides: str) -> int:
    """Run ``python -m baselines.run`` in this process; return the exit status."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["run", *overrides, f"hydra.run.dir={folder}/out"])
    return run.main()


ONE_LINE = {
    "strategy=null": "strategy=null names no option: expected one of afl, codistillation, fedadagrad, ",
    "dataset=3": "dataset=3 names no option: expected one of cifar10, ",
    "lr=0.1": "there is no setting lr: did you mean client.optimizer.lr?",
    "client.lr=0.1": "there is no setting client.lr: did you mean client.optimizer.lr?",
    "strategy.mu=0.1": "there is no setting strategy.mu: python -m baselines.run --help shows all",
    "seed=1,2": "seed=1,2 has several values: with -m each is a run of its own, in [] a list",
    "hydra.sweeper.params.x=1": "Unexpected type for root: NoneType, in: hydra.sweeper.params.x=1",
    "~client": "~client deletes a setting that every run needs: choose another value, client=...",
    "~strategy=fedavg": "~strategy=fedavg deletes a setting that every run needs: choose another value",
    "~seed": "~seed deletes a setting that every run needs: choose another value, seed=...",
    "+foo=3": "there is no setting foo: python -m baselines.run --help shows all",
    "+nodes_per_rond=3": "there is no setting nodes_per_rond: did you mean nodes_per_round?",
    "++foo.bar=3": "there is no setting foo.bar",
    "+dataset.foo=3": "there is no setting dataset.foo",
    "+logger.foo=1": "there is no setting logger.foo",
    "num_nodes=5000": "num_nodes=5000 is more than the 1437 training examples that validation_size=0",
    "partitioner=iid num_nodes=1438": "num_nodes=1438 is more than the 1437 training examples",
    "partitioner=iid num_nodes=1138 validation_size=300": "num_nodes=1138 is more than the 1137 training",
    "model=char_lstm": "the model does not take the data set's inputs of shape (1, 8, 8)",
    "evaluation=null": "expected evaluation.max_share and evaluation.node_spread",
    "early_stopping=${rounds}": "expected early_stopping.patience and early_stopping.metric",
    "num_nodes=0": "num_nodes=0 is out of range: expected a whole number above 0",
    "nodes_per_round=11": "nodes_per_round=11 is out of range: expected at most num_nodes=10",
    "nodes_per_round=0": "nodes_per_round=0 is out of range: expected a whole number above 0, or null",
    "nodes_per_round=2.5": "nodes_per_round=2.5 is out of range: expected a whole number or null",
    "private=[fedper,fedbn] node_test_fraction=0.2": "private=[fedper,fedbn]: the last option would",
    "mask=[agreement,and]": "mask=[agreement,and]: the last option would overwrite the others: choose one",
    "nodes_per_round=few quorum=1 round_deadline=5": "nodes_per_round=few is out of range: expected a",
    "central_test=none node_test_fraction=0.2 evaluation.per_class=true": "evaluation.per_class=true: the",
    "central_test=none node_test_fraction=0.2 early_stopping.metric=test/loss early_stopping.patience=3": (
        "early_stopping.metric=test/loss: the server has no test set"
    ),
    "nodes_per_round=few": "nodes_per_round=few is out of range: expected a whole number or null",
    "min_replies=11": "min_replies=11 is out of range: expected at most 10",
    "max_failed_rounds=0": "max_failed_rounds=0 is out of range: expected a whole number above 0",
    "strategy=fedexp step_size.epsilon=-1": "step_size.epsilon=-1 is out of range: expected 0 or above",
    "strategy=fedexp step_size.epsilon_decay=0": "step_size.epsilon_decay=0 is out of range",
    "step_size.eta=-0.1": "step_size.eta=-0.1 is out of range: expected a number above 0",
    "strategy=fedavgm server_optimizer.beta=1": "server_optimizer.beta=1 is out of range",
    "strategy=fedadam server_optimizer.beta2=2": "server_optimizer.beta2=2 is out of range",
    "mask=agreement mask.tau=1.5": "mask.tau=1.5 is out of range: expected in [0, 1]",
    "mask=and nodes_per_round=1": "AndMask needs at least 2 nodes in a round, but nodes_per_round=1",
    "strategy=scaffold client=adam": "client.optimizer is Adam: set strategy.option=1 (in groups",
    "strategy=local strategy.inner._target_=strategies.Scaffold client=adam": "client.optimizer is Adam",
    "strategy=fedprox strategy.mu=-1": "strategy.mu=-1 is out of range: expected 0 or above",
    "corrections=proximal client.corrections.proximal.mu=-1": "proximal.mu=-1 is out of range: expected 0",
    "corrections=moon +client.corrections.moon.nu=1": "corrections.moon=Moon cannot be built",
    "client.optimizer.lr=-1": "nvalid learning rate: -1",
    "client.optimizer.momentum=-1": "nvalid momentum value: -1",
    "client.optimizer.lr=nan": "client.optimizer.lr=nan is out of range: expected a number",
    "client.schedule.ahead=abc": "client.schedule.ahead=abc is out of range: expected a whole number",
    "strategy.seed=-1": "seed=-1 is out of range: expected a whole number, 0 or above",
    "model=linear": "the model does not take the data set's inputs of shape (1, 8, 8)",
    "runtime.batch_clients=maybe": "=maybe is unknown: expected auto, measured, true or false",
    "runtime=ray runtime.batch_clients=measured": "set it to auto, true or false",
    "runtime.batch_clients=measured deterministic=true": "set runtime.batch_clients to true or false",
    "client.batch_size=0": "client.batch_size=0 is out of range",
    "client.local_steps=3": "client.local_epochs=1 and client.local_steps=3: set exactly one of them",
    "client.schedule.gamma=2": "client.schedule.gamma=2 is out of range: expected in (0, 1]",
    "model=lenet": "model=lenet takes images of 28x28 or 32x32, but the data set's inputs have shape (1,",
    "node_test_fraction=1.5": "node_test_fraction=1.5 is out of range: expected in [0, 1)",
    "node_test_fraction=half": "node_test_fraction=half is out of range: expected in [0, 1)",
    "rounds=0": "rounds=0 is out of range: expected a whole number above 0",
    "rounds=1.5": "rounds=1.5 is out of range: expected a whole number above 0",
    "seed=-1": "seed=-1 is out of range: expected a whole number, 0 or above",
    "evaluation.node_spread=true": "evaluation.node_spread=true is out of range: expected false where",
    "node_test_fraction=0.0001": "node_test_fraction=0.0001 leaves no node of 10 an example to test on",
    "partitioner=dominant_labels partitioner.share=0.05": "partitioner.share=0.05 makes the dominant",
    "partitioner=shifted_labels partitioner.requester=10": "partitioner.requester=10 is out of range",
    "partitioner=shifted_labels partitioner.requester=-1": "partitioner.requester=-1 is out of range",
    "dataset=speech dataset.load.test_size=1": "dataset.load.test_size=1 is out of range",
    "dataset=synthetic dataset.load.rows=0": "the data set has no training examples",
    "dataset=synthetic num_nodes=20 partitioner=dirichlet": "splits by labels, but the data set's",
    "dataset=synthetic num_nodes=20 validation_size=575 seed=1": "writers have no examples left for a node",
    "objective=null": "objective=null is unknown: expected split/metric, e.g. test/accuracy",
    "objective=tset/accuracy": "objective=tset/accuracy is unknown: expected split/metric",
    "objective=test": "objective=test is unknown: expected split/metric",
    "timeout=-1": "timeout=-1 is out of range: expected seconds, above 0",
    "device=abacus": "device=abacus is not available here: expected cpu or ",
    "autocast=float16": "autocast=float16 is unknown: expected bfloat16, or null",
    "channels_last=maybe": "channels_last=maybe is unknown: expected true or false",
    "partitioner=by_writer": "partitioner=by_writer needs a data set whose examples have writers",
    "partitioner.alpha=0": "partitioner.alpha=0 is out of range: expected above 0",
    "partitioner.min_size=140": "fewer than partitioner.min_size=140 examples",
    "partitioner.min_size=500": "partitioner.min_size=500 for each of num_nodes=10 nodes is more than the",
    "dataset=synthetic num_nodes=7": "num_nodes=7: set num_nodes=20",
    "weighting=erosion": "weighting=erosion needs a requester",
    "strategy=weight_erosion weighting=uniform": "strategy=WeightErosion needs weighting=Erosion",
    "strategy=weight_erosion weighting.requester=10": "weighting.requester=10 is out of range",
}


@pytest.mark.exhaustive
@pytest.mark.parametrize(("overrides", "message"), ONE_LINE.items(), ids=ONE_LINE)
def test_one_line_and_status_2(
    overrides: str,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert launch(monkeypatch, tmp_path, *overrides.split()) == 2
    out, err = capfd.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    assert line.startswith("error: ")
    assert message in line


@pytest.mark.slow
@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "strategy=nowhere",
            "strategy/nowhere does not exist: expected one of afl, codistillation, fedadagrad, fedadam",
        ),
        (
            "dataset=nowhere",
            "dataset/nowhere does not exist: expected one of cifar10, cifar100, cmnist, cmnist_maps",
        ),
        (
            "experiment=none/such",
            "experiment/none/such does not exist: expected one of feder/table4_2, fedexp/",
        ),
        (
            "experiment=gma/nope",
            "experiment/gma/nope does not exist: expected one of figure3_1, figure3_2, fig",
        ),
        ("round=3", "there is no setting round: did you mean rounds?"),
        (
            "client.optimizer.rl=3",
            "there is no setting client.optimizer.rl: did you mean client.optimizer.lr?",
        ),
        (
            "client.learning_rate=3",
            "there is no setting client.learning_rate: did you mean client.optimizer.lr?",
        ),
        ("rounds=[1", "cannot read rounds=[1: expected key=value, and 'key=\"value\"' for a value with"),
        ("rounds", "cannot read rounds: expected key=value"),
        ("data_root=~/data", "cannot read data_root=~/data: expected key=value"),
    ],
)
def test_what_does_not_exist_is_told_in_one_line(
    override: str,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert launch(monkeypatch, tmp_path, override) == 2
    out, err = capfd.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    assert line.startswith(f"error: {message}")
    assert " base," not in line


@pytest.mark.slow
def test_a_launcher_that_is_not_installed_is_told_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert launch(monkeypatch, tmp_path, "hydra/launcher=nowhere") == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("error: hydra/launcher/nowhere does not exist: expected one of basic,")
    extras = re.findall(r"\[(.+)\]", line)[0].split(",")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(extras) <= set(project["optional-dependencies"])


@pytest.mark.parametrize("name", ["sweeper/optuna", "launcher/submitit_local", "launcher/joblib"])
def test_a_plugin_that_is_not_installed_is_told_with_its_own_extra(name: str) -> None:
    """It is what hydra/sweeper=random_search is made of, so that this is no choice instead."""
    missing = MissingConfigException(
        "", missing_cfg_file=f"hydra/{name}", options=["basic", "random_search"]
    )
    extra = name.partition("/")[2].removesuffix("_local")
    assert str(describe_mistake(missing)) == (
        f"hydra/{name} does not exist: it comes with one of Hydra's plugins: pip install -e '.[{extra}]'"
    )


@pytest.mark.slow
@pytest.mark.parametrize("download", ["false", "true"])
def test_a_data_set_that_is_not_there(
    download: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Either not to be downloaded, or not to be had: the download is refused here without a network."""
    import torchvision.datasets.mnist as module

    def no_network(*args: object, **kwargs: object) -> None:
        raise RuntimeError("Error downloading train-images-idx3-ubyte.gz:\nname or service not known")

    monkeypatch.setattr(module, "download_and_extract_archive", no_network)
    overrides = ["dataset=mnist", f"dataset.load.images.download={download}", f"data_root={tmp_path}/empty"]
    assert launch(monkeypatch, tmp_path, *overrides) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert f"MNIST is not in {tmp_path}/empty" in line
    assert "dataset=digits" in line


@pytest.mark.slow
def test_debug_shows_the_traceback(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert launch(monkeypatch, tmp_path, "num_nodes=5000", "debug=true") == 2
    err = capfd.readouterr().err
    assert "Traceback" in err
    assert err.splitlines()[-1].startswith("error: num_nodes=5000 is more than")


@pytest.mark.slow
def test_one_mistake_does_not_end_a_sweep(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    sweep = ["-m", "nodes_per_round=50,2", "rounds=1", "hydra.sweep.dir=sweep"]
    monkeypatch.setattr(sys, "argv", ["run", *sweep])
    assert run.main() == 2
    assert "error: nodes_per_round=50" in capfd.readouterr().err
    assert len(list(tmp_path.rglob("metrics.csv"))) == 1


@pytest.mark.parametrize("mode", ["run", "sweep"])
def test_a_folder_that_cannot_be(
    mode: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    words = [*["-m"] * (mode == "sweep"), "rounds=1", f"hydra.{mode}.dir={tmp_path}/file/x"]
    monkeypatch.setattr(sys, "argv", ["run", *words])
    assert run.main() == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert f"Not a directory: '{tmp_path}/file/x': set hydra.run.dir, or for a sweep" in line


def command(*overrides: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "baselines.run", *overrides, f"hydra.run.dir={folder}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.slow
def test_a_mistake_in_a_process_of_its_own(tmp_path: Path) -> None:
    done = command("nodes_per_round=11", folder=tmp_path / "run")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == "error: nodes_per_round=11 is out of range: expected at most num_nodes=10\n"


@pytest.mark.slow
def test_a_run_that_fails_says_so_names_the_nodes_and_leaves_what_it_has(tmp_path: Path) -> None:
    """Every node diverges: nobody sends numbers. Hydra's own logging would silence the loggers."""
    done = command("client.optimizer.lr=1e30", "max_failed_rounds=2", "num_nodes=3", folder=tmp_path)
    assert done.returncode == 1
    assert "Traceback" not in done.stdout + done.stderr
    assert "\x1b" not in done.stdout + done.stderr  # no colours in a pipe
    assert "update counts" not in done.stdout + done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert line.startswith("error: 2 rounds in a row failed: 0 sound replies, min_replies=1 (left out")
    assert "partition 0 sent 'loss'=nan, expected a number" in line
    assert line.endswith("; the losses are no numbers: lower the learning rate of the clients")
    for partition_id in range(3):
        message = f"partition {partition_id} left out: sent 'loss'=nan, expected a number"
        assert message in done.stderr.replace(line, "") + done.stdout
    assert set(metrics_in(tmp_path)["round"]) == {0, 1}
    assert '"status": "failed: 2 rounds in a row failed' in (tmp_path / "environment.json").read_text()


@pytest.mark.slow
def test_a_full_disk_takes_nothing_that_was_written(tmp_path: Path) -> None:
    """No file may become larger than 8 kB, and a checkpoint of this model would."""
    words = ["model=mlp", "rounds=4", "num_nodes=2", "checkpoint_every=2", f"hydra.run.dir={tmp_path}"]
    limit = "import resource, runpy, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (8000, 8000))"
    program = f"{limit}; sys.argv[1:] = {words}; runpy.run_module('baselines.run', run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    named = f"error: [Errno 27] File too large: '{tmp_path}/checkpoint/latest.pt'"
    assert done.stderr.splitlines()[-1] == named
    assert set(metrics_in(tmp_path)["round"]) == {0, 1, 2}
    assert '"status": "failed: [Errno 27] File too large' in (tmp_path / "environment.json").read_text()


@pytest.mark.slow
def test_a_fault_of_the_program_ends_in_a_line_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(preflight, "check", lambda _: 1 // 0)
    assert launch(monkeypatch, tmp_path, "rounds=1") == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-1] == "error: ZeroDivisionError: integer division or modulo by zero (see above)"


def test_another_flower_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def job() -> None:
        raise ImportError(lacking)

    monkeypatch.setattr(run, "_job", job)
    monkeypatch.setattr("sys.argv", ["run"])
    lacking = "Flower 2.0.0 lacks what this project uses"
    assert run.main() == 2
    assert capsys.readouterr().err == f"error: {lacking}\n"
    lacking = "No module named 'mine'"
    with pytest.raises(ImportError, match="No module named 'mine'"):
        run.main()
