"""Runs whose files are not as they left them: not finished, and named by ``compare``; a full disk."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from baselines import compare
from baselines.engine import resume
from baselines.engine.run_folder import RunFolder
from baselines.errors import UserError
from baselines.experiment.experiment import Experiment
from helpers.runs import launch, lines_in, played, write_run

Damage = Callable[[Path], object]
SETTING = "num_nodes=2 rounds=2 model=softmax checkpoint_every=1"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a finished run."""
    folder = tmp_path_factory.mktemp("whole")
    played(SETTING, folder)
    return folder


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    """Return a copy of it, to damage."""
    return Path(shutil.copytree(whole, tmp_path / "run"))


def change(name: str, old: str, new: str) -> Damage:
    def damage(folder: Path) -> None:
        data = (folder / name).read_bytes()  # each end of a line as it is
        assert old.encode() in data
        (folder / name).write_bytes(data.replace(old.encode(), new.encode()))

    return damage


def overwrite(folder: Path) -> None:
    path = folder / "metrics.csv"
    path.write_bytes(b"\xff" * path.stat().st_size)


DAMAGES: dict[str, tuple[Damage, str]] = {
    "a digit": (
        change("metrics.csv", "test,global,accuracy,0.", "test,global,accuracy,1."),
        "metrics.csv has changed since the run wrote it",
    ),
    "other bytes": (overwrite, "metrics.csv has changed since the run wrote it"),
    "config changed": (
        change("config.yaml", "rounds: 2", "rounds: 3"),
        "config.yaml has changed since the run wrote it",
    ),
    "config gone": (lambda folder: (folder / "config.yaml").unlink(), "config.yaml is missing"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("damage", "message"), DAMAGES.values(), ids=DAMAGES)
def test_a_finished_run_is_one_whose_files_are_as_it_left_them(
    damage: Damage, message: str, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert resume.is_finished(Experiment(SETTING), folder)
    damage(folder)
    assert not resume.is_finished(Experiment(SETTING), folder)
    assert message in caplog.text


def test_it_runs_again_to_the_same_rows(whole: Path, folder: Path) -> None:
    (folder / "config.yaml").unlink()
    assert launch(*SETTING.split(), "resume=true", f"hydra.run.dir={folder}") == 0
    assert lines_in(folder) == lines_in(whole)
    assert (folder / "config.yaml").is_file()


@pytest.mark.slow
def test_a_run_older_than_the_checksums_is_finished_as_before(folder: Path) -> None:
    account = json.loads((folder / "environment.json").read_text())
    assert set(account.pop("checksums")) == {"metrics.csv", "config.yaml"}
    (folder / "environment.json").write_text(json.dumps(account))
    assert resume.is_finished(Experiment(SETTING), folder)
    overwrite(folder)  # which its size does not tell
    assert launch(*SETTING.split(), "resume=true", f"hydra.run.dir={folder}") == 2


@pytest.mark.slow
def test_rows_that_have_changed_are_not_gone_on_from(folder: Path) -> None:
    change("environment.json", '"finished"', '"running"')(folder)
    DAMAGES["a digit"][0](folder)
    with pytest.raises(UserError, match=r"metrics.csv has changed since the checkpoint: start again"):
        played(f"{SETTING} resume=true", folder)


def cut(folder: Path) -> None:
    path = folder / "metrics.csv"
    path.write_text(path.read_text().rpartition(",")[0] + "\n")


ACCOUNTS: dict[str, tuple[Damage, str]] = {
    "overrides of another kind": (
        change("environment.json", '"seed=0"', "3"),
        "environment.json is damaged",
    ),
    "an unclosed quote": (change("environment.json", "seed=0", "seed='0"), "environment.json is damaged"),
    "no status": (change("environment.json", '"status"', '"state"'), "environment.json is damaged"),
    "no account": (lambda folder: (folder / "environment.json").unlink(), "environment.json is missing"),
    "no rows": (lambda folder: (folder / "metrics.csv").unlink(), "metrics.csv is missing or empty"),
    "a word": (change("metrics.csv", "0.5", "half"), "metrics.csv is damaged (could not convert"),
    "a cut row": (cut, "metrics.csv is damaged (could not convert"),
    "a cut heading": (change("metrics.csv", ",value", ""), "metrics.csv is damaged (Length of header"),
    "an open quote": (change("metrics.csv", "global", '"global'), "metrics.csv is damaged ("),
    "other bytes": (overwrite, "metrics.csv is damaged ('utf-8' codec"),
    "a word for a round": (change("metrics.csv", "1,test", "one,test"), "metrics.csv is damaged (invalid"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("damage", "message"), ACCOUNTS.values(), ids=ACCOUNTS)
def test_compare_names_what_it_leaves_out(
    damage: Damage, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path / "0", "seed=0", 0, [0.1, 0.5], "finished")
    write_run(tmp_path / "1", "seed=1", 1, [0.1, 0.9], "finished")
    damage(tmp_path / "0")
    assert compare.main([str(tmp_path)]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("left out (")]
    assert line.startswith(f"left out ({message}")
    assert line.endswith(f"): {tmp_path / '0'}")
    assert "| all | 1 | 1 | 90.0 % |" in (tmp_path / "1" / "comparison.md").read_text()
    assert compare.main([str(tmp_path / "0")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {tmp_path / '0'}/{message}")


FULL = Path("/dev/full")  # Linux' file on a disk that is full


@pytest.mark.slow
@pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full here")
@pytest.mark.parametrize("name", ["environment.json", "checkpoint/latest.pt"])
def test_a_full_disk_is_told_with_the_file(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fresh = (tmp_path / name).with_suffix(".tmp")
    fresh.parent.mkdir(exist_ok=True)
    fresh.symlink_to(FULL)
    assert launch(*SETTING.split(), f"hydra.run.dir={tmp_path}") == 1
    err = capfd.readouterr().err.splitlines()
    assert err[-1] == f"error: [Errno 28] No space left on device: '{tmp_path / name}'"


@pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full here")
def test_a_full_disk_is_told_with_metrics_csv(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").symlink_to(FULL)
    with pytest.raises(OSError, match=r"No space left on device: '.+/metrics\.csv'"):
        RunFolder(tmp_path, Experiment(SETTING)).write(1, "test", "global", {"loss": 1.0})
