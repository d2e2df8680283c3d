"""A value of another kind than its setting's: one line that names it, exit status 2, and nothing begun."""

from pathlib import Path

import pytest
import yaml

from helpers.runs import launch

ONE = "expected a number"
WHOLE = "expected a whole number"
FLAG = "expected true or false"
MISTAKES = [
    (
        "strategy=selective validation_size=1 grouping.threshold=tuned rounds=7",
        "validation_size=1: Overlap is tuned on one half of the validation examples",
    ),
    (
        "client.optimizer.lr=1e39",
        "client.optimizer.lr=1e+39 is out of range: expected a number that float32",
    ),
    ("strategy=fedadam server_optimizer.epsilon=1e-50", "server_optimizer.epsilon=1e-50 is out of range: "),
    ("privacy=central privacy.clip=1e300", "privacy.clip=1e+300 is out of range: expected a number that"),
    ("client.local_epochs=null", "client.local_epochs=null and client.local_steps=null: set exactly one"),
    ("model='${'", "cannot read model='${': no viable alternative at input"),
    ("client.keep_optimizer=flase", f"client.keep_optimizer=flase is out of range: {FLAG}"),
    ("strategy=fedexp step_size.clamp=flase", f"step_size.clamp=flase is out of range: {FLAG}"),
    ("strategy=fedadam server_optimizer.bias_correction=1", f".bias_correction=1 is out of range: {FLAG}"),
    ("model=mlp model.he_init=abc", f"model.he_init=abc is out of range: {FLAG}"),
    ("resume=flase", "resume=flase is out of range: expected true, false or null"),
    ("debug=maybe", f"debug=maybe is out of range: {FLAG}"),
    ("rounds=true", f"rounds=true is out of range: {WHOLE} above 0"),
    ("seed=true", f"seed=true is out of range: {WHOLE}, 0 or above"),
    ("timeout=true", "timeout=true is out of range: expected seconds, above 0"),
    ("mask=agreement mask.tau=abc", f"mask.tau=abc is out of range: {ONE}"),
    ("mask=agreement mask.tau=true", f"mask.tau=true is out of range: {ONE}"),
    ("strategy.seed=abc", f"strategy.seed=abc is out of range: {WHOLE}"),
    ("strategy.seed=1.5", f"strategy.seed=1.5 is out of range: {WHOLE}"),
    ("client.max_grad_norm=abc", f"client.max_grad_norm=abc is out of range: {ONE} or null"),
    ("client.schedule.gamma=abc", f"client.schedule.gamma=abc is out of range: {ONE}"),
    (
        "partitioner=dirichlet partitioner.min_size=abc",
        f"partitioner.min_size=abc is out of range: {WHOLE}",
    ),
    ("strategy.weighting=examples", "expected a part, chosen with weighting=..."),
    ("client.schedule=null", "client.schedule=null is out of range: expected a part"),
    ("strategy=base", "strategy=base is an internal template: choose another option"),
    ("hydra.searchpath=[/no/such]", "hydra.searchpath: there is no folder /no/such"),
    ("strategy._target_=nolab.parts.New", "No module named 'nolab' (is its folder on PYTHONPATH?)"),
    ("dataset.load.mean=[0,1]", "the data set's transform does not take its inputs"),
    ("model.num_classes=0", "train_targets are 0 to 9, torch.int64, and the model has 0 classes"),
    ("logger=mlflow logger.mlflow._target_=builtins.dict", "builtins.dict is not a Logger"),
    ("model.num_classes=3", "train_targets are 0 to 9, torch.int64, and the model has 3 classes"),
    (
        "strategy=foreign mask=agreement",
        "mask does not reach FedAvg, which is not a strategy of this suite",
    ),
    ("strategy=foreign nodes_per_round=2", "nodes_per_round does not reach FedAvg"),
    (
        "weighting=erosion weighting.requester=1000000",
        "requester=1000000 is out of range: expected below num_nodes=10",
    ),
    ("strategy=foreign num_nodes=1", "FedAvg waits for 2 nodes, and num_nodes=1"),
    ("strategy=unreadable", "not YAML: while parsing"),
]


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of options of a user's own."""
    folder = tmp_path_factory.mktemp("options")
    (folder / "strategy").mkdir()
    foreign = {"_target_": "flwr.serverapp.strategy.FedAvg"}
    (folder / "strategy" / "foreign.yaml").write_text(yaml.safe_dump(foreign))
    naming = foreign | {"min_train_nodes": "${nodes_per_round}", "fraction_train": 0.0}
    (folder / "strategy" / "naming.yaml").write_text(yaml.safe_dump(naming))
    (folder / "strategy" / "unreadable.yaml").write_text("a: [")
    return folder


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore:provider=hydra.searchpath")
@pytest.mark.parametrize(("overrides", "message"), MISTAKES, ids=[overrides for overrides, _ in MISTAKES])
def test_is_told_in_one_line(
    overrides: str, message: str, options: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    theirs = {"strategy=foreign", "strategy=unreadable"} & set(overrides.split())
    own = ["--config-dir", str(options)] if theirs else []
    assert launch(*own, *overrides.split(), f"hydra.run.dir={tmp_path / 'run'}") == 2
    err = capfd.readouterr().err.splitlines()
    assert len(err) == 1 or "hydra.searchpath" in overrides  # there Hydra says so, too
    assert err[-1].startswith("error: ")
    assert message in err[-1]
    assert not (tmp_path / "run" / "metrics.csv").exists()


@pytest.mark.slow
def test_a_strategy_of_flowers_own_may_name_a_setting(options: Path, tmp_path: Path) -> None:
    named = ["strategy=naming", "nodes_per_round=2"]
    assert launch("--config-dir", str(options), *named, "rounds=1", f"hydra.run.dir={tmp_path}") == 0


@pytest.mark.slow
def test_a_short_run_in_which_nobody_trains_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lost = ["num_nodes=3", "min_replies=3", "nodes_per_round=3", "rounds=2", "timeout=1e-9"]
    assert launch(*lost, "model=softmax", f"hydra.run.dir={tmp_path}") == 1
    assert "2 rounds in a row failed: 0 sound replies, min_replies=3" in capsys.readouterr().err
