"""Runs with privacy, from the command line to metrics.csv and environment.json."""

import json
import shlex
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from baselines.apps import client_app_of
from baselines.experiment import experiment
from baselines.experiment.overrides import inline_schema
from baselines.federation.__main__ import main
from baselines.grids.inline import InlineGrid
from helpers.runs import curve, launch, lines_in, metrics_in, played
from strategies.parts.privacy import epsilon

SMALL = "dataset=digits partitioner=iid num_nodes=4 model=softmax weighting=uniform client.optimizer.lr=0.1"


def run(folder: Path, *arguments: str) -> int:
    return launch(*SMALL.split(), *arguments, f"hydra.run.dir={folder}")


@pytest.mark.slow
def test_little_noise_learns_and_much_does_not(tmp_path: Path) -> None:
    little = f"{SMALL} rounds=5 privacy=central privacy.clip=3 privacy.noise_multiplier=0.05"
    much = f"{SMALL} rounds=5 privacy=central privacy.clip=3 privacy.noise_multiplier=30"
    accuracy = [
        curve(played(setting, tmp_path / name), "test", "accuracy")[-1]
        for name, setting in (("little", little), ("much", much))
    ]
    assert accuracy[0] > 0.7
    assert accuracy[1] < 0.4


@pytest.mark.slow
def test_what_a_clip_of_infinity_costs_is_nothing(tmp_path: Path) -> None:
    """With no noise a private run is the run without privacy, byte for byte, epsilon's absence included."""
    bare = "privacy.clip=inf privacy.noise_multiplier=0"
    played(f"{SMALL} rounds=3", tmp_path / "plain")
    for kind in ("central", "local"):
        played(f"{SMALL} rounds=3 privacy={kind} {bare}", tmp_path / kind)
    assert lines_in(tmp_path / "central") == lines_in(tmp_path / "plain")
    metrics = ("loss", "accuracy")  # of training, which nodes do not tell under local privacy
    kept = [line for line in lines_in(tmp_path / "local") if ",test," in line]
    assert kept == [line for line in lines_in(tmp_path / "plain") if ",test," in line]
    assert not set(metrics) & set(metrics_in(tmp_path / "local").query("split == 'train'").metric)


@pytest.mark.slow
def test_batched_nodes_noise_alike(tmp_path: Path) -> None:
    private = f"{SMALL} rounds=2 privacy=local privacy.clip=2 privacy.noise_multiplier=0.1"
    losses = []
    for batched in ("false", "true"):
        assert (
            launch(*f"{private} runtime.batch_clients={batched} hydra.run.dir={tmp_path / batched}".split())
            == 0
        )
        losses.append(curve(metrics_in(tmp_path / batched), "test", "loss"))
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert losses[0][0] != losses[0][-1]


@pytest.mark.slow
def test_a_budget_ends_the_run_and_a_resumed_one_goes_no_further(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    private = [
        "rounds=6",
        "privacy=adaptive",
        "privacy.stop_at_epsilon=8",
        "checkpoint_every=1",
        "resume=true",
    ]
    assert run(tmp_path, *private) == 0
    rows = metrics_in(tmp_path)
    assert curve(rows, "train", "epsilon") == [epsilon(1, rounds, 1e-5) for rounds in (1, 2)]
    assert len(curve(rows, "test", "loss")) == 3
    environment = json.loads((tmp_path / "environment.json").read_text())
    assert environment["status"] == "finished"
    assert environment["over"].startswith(
        "privacy.stop_at_epsilon=8: a further round would cost epsilon 8."
    )
    before = lines_in(tmp_path)
    capsys.readouterr()
    assert run(tmp_path, *private) == 0
    assert "finished already" in capsys.readouterr().out
    (tmp_path / "environment.json").unlink()  # killed after its last checkpoint
    assert run(tmp_path, *private) == 0
    assert lines_in(tmp_path) == before


@pytest.mark.slow
def test_a_resumed_run_is_one_in_one_go(tmp_path: Path) -> None:
    for kind in ("adaptive", "local"):
        private = [f"privacy={kind}", "checkpoint_every=1", "nodes_per_round=2"]
        assert run(tmp_path / f"{kind}-whole", *private, "rounds=4") == 0
        assert run(tmp_path / kind, *private, "rounds=2") == 0
        assert run(tmp_path / kind, *private, "rounds=4", "resume=true") == 0
        assert lines_in(tmp_path / kind) == lines_in(tmp_path / f"{kind}-whole")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        ("privacy=central weighting=examples", "weighting=ByExamples may follow the nodes' data"),
        ("privacy=central strategy=scaffold", "nodes also send 'control'"),
        ("privacy=central strategy=fedexp", "step_size=Extrapolated looks at the updates"),
        (
            "model=mlp private=fedper node_test_fraction=0.2 strategy=selective validation_size=60",
            "the server would predict with models that",
        ),
        ("privacy=central strategy=local", "each group's model shows who is in it"),
        ("privacy=central model=resnet18 dataset.shape=[3,32,32]", "gets no noise; choose a model without"),
        ("privacy=local node_test_fraction=0.2", "with privacy=local nodes do not evaluate"),
        ("privacy=central privacy.stop_at_epsilon=1", "expected at least 4.377, a round's"),
        ("privacy=adaptive privacy.count_noise=0.4", "expected above 0.5, half the noise_multiplier"),
        ("privacy=central privacy.delta=2", "privacy.delta=2 is out of range"),
        ("privacy=central privacy.noise_multiplier=much", "privacy.noise_multiplier"),
    ],
)
def test_a_mistake_is_one_line(
    overrides: str, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, *overrides.split()) == 2
    error = capsys.readouterr().err
    assert line in error
    assert len(error.splitlines()) == 1


@pytest.fixture
def sites(tmp_path: Path) -> list[str]:
    """Return the overrides of an experiment of two sites with digits of their own."""
    inputs, targets = load_digits(return_X_y=True)
    inputs, names = inputs.reshape(-1, 1, 8, 8).astype("float32"), np.array(list("abcdefghij"))[targets]
    for k, name in enumerate(("north", "south")):
        np.savez(tmp_path / f"{name}.npz", inputs=inputs[k::2], targets=names[k::2])
    schema = tmp_path / "schema.yaml"
    assert main(["schema", str(tmp_path / "north.npz"), "--out", str(schema)]) == 0
    return ["dataset=local", f"dataset.schema={schema}", "num_nodes=2", "weighting=uniform", "rounds=2"]


@pytest.mark.slow
def test_sites_do_not_know_the_noise(
    sites: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = f"runtime.sites={{north: {tmp_path / 'north.npz'}, south: {tmp_path / 'south.npz'}}}"
    local = [*sites, own, "privacy=local", f"hydra.run.dir={tmp_path / 'run'}"]
    assert launch(*local) == 2
    assert "set privacy.noise_seed=null" in capsys.readouterr().err
    assert launch(*local, "privacy.noise_seed=null") == 0  # judged by nobody
    assert set(metrics_in(tmp_path / "run").split) == {"train", "site-train"}


def test_a_site_that_demands_more_takes_no_part(
    sites: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    overrides = shlex.join(
        [*map(inline_schema, sites), "privacy=local", "privacy.noise_seed=null", "node_timeout=0.2"]
    )
    own = {name: str(tmp_path / f"{name}.npz") for name in ("north", "south")}
    grid = InlineGrid(client_app_of(overrides), 2, sites=own)
    north, south = grid.get_node_ids()
    grid.context(north).node_config.update({"privacy": "local", "min-noise": 2.0})
    grid.context(south).node_config.update({"privacy": "local", "min-noise": 0.5})
    setup = experiment.load(overrides)
    messages = list(setup.strategy().configure_train(1, setup.initial_arrays(), setup.train_config(), grid))
    assert [message.metadata.dst_node_id for message in messages] == [south]
    assert "site north takes no part: this node demands privacy=local with noise_multiplier 2 or more" in (
        caplog.text
    )
