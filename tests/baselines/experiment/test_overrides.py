"""Overrides that name another value, and the folders that overrides name."""

import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from baselines.errors import UserError
from baselines.experiment import config
from baselines.experiment.overrides import require_keys, sort_overrides_last
from helpers.runs import launch

SMALL = ["model=softmax", "num_nodes=2", "rounds=1"]
LONG = [  # defaults, so that the runs are those of the few that differ
    *SMALL,
    *[
        "min_replies=1",
        "max_failed_rounds=3",
        "node_test_fraction=0",
        "validation_size=0",
        "evaluate_every=1",
    ],
    *["client.optimizer.momentum=0.0", "client.optimizer.weight_decay=0.0", "client.optimizer.lr=0.05"],
    *[
        "client.schedule.gamma=1.0",
        "client.batch_size=32",
        "client.local_epochs=1",
        "partitioner.alpha=0.3",
    ],
    *["partitioner.min_size=2", "timeout=3600", "threads=1", "resume=true"],
]


def read_overrides(folder: Path) -> str:
    return str(json.loads((folder / "environment.json").read_text())["overrides"])


def test_options_may_stand_between_overrides() -> None:
    written = ["-m", "seed=0,1", "--config-dir", "my=conf", "~hydra.x", "--config-name=c", "rounds=1"]
    arguments = ["-m", "--config-dir", "my=conf", "--config-name=c", "seed=0,1", "~hydra.x", "rounds=1"]
    assert sort_overrides_last(written) == arguments == sort_overrides_last(arguments)


@pytest.mark.slow
def test_a_run_takes_an_option_between_its_overrides(tmp_path: Path) -> None:
    folder = f"hydra.run.dir={tmp_path / 'run'}"
    assert launch("dataset=digits", "--config-dir", str(tmp_path), *SMALL, folder) == 0


@pytest.mark.parametrize("written", ["client.batch_size=None", "client.batch_size=None,16", "+quorum=None"])
def test_pythons_none_is_named(written: str) -> None:
    key = written.lstrip("+").partition("=")[0]
    with pytest.raises(UserError, match=rf"^{key} is given the text 'None': for nothing write null$"):
        require_keys(["rounds=1", written])
    assert require_keys(["central_test=none", "client.batch_size=null"])


@pytest.mark.slow
@pytest.mark.parametrize("written", ["${..seed}", "${seed}"])
def test_a_value_that_names_another_is_that_value(written: str, tmp_path: Path) -> None:
    """Relative to where it stands, not to Hydra's list of overrides; other processes are told the value."""
    assert launch(*SMALL, f"strategy.seed={written}", "seed=7", f"hydra.run.dir={tmp_path}") == 0
    assert "strategy.seed=7 seed=7" in read_overrides(tmp_path)


@pytest.mark.slow
def test_a_text_that_names_another_stays_a_text(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Such as the text null, which is no null."""
    named = ["client.optimizer.lr=${..local_steps_as_text}", "+client.local_steps_as_text='null'"]
    assert launch(*SMALL, *named, f"hydra.run.dir={tmp_path}") == 2
    assert "client.optimizer.lr=null is out of range: expected a number" in capfd.readouterr().err


@pytest.mark.slow
def test_so_in_each_job_of_a_sweep_and_in_the_names_of_their_folders(tmp_path: Path) -> None:
    assert launch("-m", *SMALL, "strategy.seed=${..seed}", "seed=7,8", f"hydra.sweep.dir={tmp_path}") == 0
    for seed in (7, 8):
        folder = tmp_path / f"model=softmax,num_nodes=2,seed={seed},strategy.seed={seed}"
        assert f"strategy.seed={seed}" in read_overrides(folder)


@pytest.mark.slow
def test_many_overrides_name_folders_by_what_is_swept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(",".join(LONG)) > 255
    assert launch("-m", *LONG, "seed=0,1", f"hydra.sweep.dir={tmp_path}") == 0
    names = sorted(path.parent.name for path in tmp_path.rglob("metrics.csv"))
    assert [name.partition(",")[0] for name in names] == ["seed=0", "seed=1"]
    capsys.readouterr()
    assert launch("-m", *LONG, "seed=1", f"hydra.sweep.dir={tmp_path}") == 0  # nothing is swept now
    assert f"finished already: {tmp_path / names[1]}" in capsys.readouterr().out
    assert sorted(path.parent.name for path in tmp_path.rglob("metrics.csv")) == names


@pytest.mark.slow
def test_where_that_is_too_long_by_a_hash(tmp_path: Path) -> None:
    swept = [re.sub("=(.+)", r"=choice(\1)", text) for text in LONG[len(SMALL) :]]
    assert launch("-m", *SMALL, *swept, f"hydra.sweep.dir={tmp_path}") == 0
    (name,) = (path.parent.name for path in tmp_path.rglob("metrics.csv"))
    assert re.fullmatch("[0-9a-f]{16}", name)


@pytest.mark.slow
def test_a_sweep_of_more_rounds_continues_its_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = [
        "-m",
        *SMALL[:2],
        "seed=0,1",
        "checkpoint_every=1",
        "resume=true",
        f"hydra.sweep.dir={tmp_path}",
    ]
    assert launch(*sweep, "rounds=1") == 0
    assert launch(*sweep, "rounds=2") == 0
    assert "round 1/2" not in capsys.readouterr().out
    names = {path.parent.name for path in tmp_path.rglob("metrics.csv")}
    assert names == {f"model=softmax,num_nodes=2,seed={seed}" for seed in (0, 1)}


@pytest.mark.slow
def test_rounds_that_are_swept_name_folders(tmp_path: Path) -> None:
    assert launch("-m", *SMALL[:2], "rounds=1,2", f"hydra.sweep.dir={tmp_path}") == 0
    names = {path.parent.name for path in tmp_path.rglob("metrics.csv")}
    assert names == {f"model=softmax,num_nodes=2,rounds={rounds}" for rounds in (1, 2)}


@pytest.mark.slow
@pytest.mark.parametrize("key", ["save", "checkpoint_every"])
def test_so_does_what_decides_no_number(key: str, tmp_path: Path) -> None:
    """Else the second run of the sweep would meet the first in its folder."""
    values = {"save": ("best", "last"), "checkpoint_every": ("0", "1")}[key]
    override = f"{key}={','.join(values)}"
    assert launch("-m", *SMALL, override, "resume=true", f"hydra.sweep.dir={tmp_path}") == 0
    names = {path.parent.name for path in tmp_path.rglob("metrics.csv")}
    assert names == {",".join(sorted([f"{key}={value}", *SMALL[:2]])) for value in values}


@pytest.mark.slow
def test_what_a_sweeper_varies_names_folders(tmp_path: Path) -> None:
    """As hydra/sweeper=random_search tells it, in its own settings."""
    mine = tmp_path / "conf" / "experiment" / "mine.yaml"
    mine.parent.mkdir(parents=True)
    mine.write_text("# @package _global_\nhydra: {sweeper: {params: {rounds: '1,2', seed: '3,4'}}}\n")
    own = ["--config-dir", f"{tmp_path}/conf", "experiment=mine", f"hydra.sweep.dir={tmp_path}/runs"]
    assert launch("-m", *own, *SMALL[:2]) == 0
    names = {path.parent.name for path in tmp_path.rglob("metrics.csv")}
    pairs = [(rounds, seed) for rounds in (1, 2) for seed in (3, 4)]
    assert names == {
        f"experiment=mine,model=softmax,num_nodes=2,rounds={rounds},seed={seed}" for rounds, seed in pairs
    }


@pytest.mark.slow
def test_threads_compose_at_once() -> None:
    with ThreadPoolExecutor(4) as pool:
        actual = list(pool.map(lambda seed: config.load(f"seed={seed}").seed, range(4100, 4112)))
    assert actual == list(range(4100, 4112))
