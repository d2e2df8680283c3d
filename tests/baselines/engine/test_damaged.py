"""A run whose files are damaged says so, or begins again; it never goes on from what is not there."""

import json
import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from baselines.engine import checkpoint, resume, run_folder
from baselines.errors import UserError
from baselines.experiment.experiment import Experiment
from baselines.experiment.messages import logger
from helpers.runs import launch, lines_in, played

Damage = Callable[[Path], object]
SETTING = "num_nodes=2 rounds=4 model=softmax checkpoint_every=2"


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


def unfinished(folder: Path) -> None:
    """Let a run look like one that was killed after its last checkpoint."""
    path = folder / "environment.json"
    path.write_text(path.read_text().replace('"finished"', '"running"'))


def flip_a_byte(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        largest = max(archive.infolist(), key=lambda entry: entry.file_size)
        data = bytearray(path.read_bytes())
        place = data.index(archive.read(largest)) + largest.file_size // 2
    data[place] ^= 0x41
    path.write_bytes(data)


DAMAGE = {
    "cut": lambda path: path.write_bytes(path.read_bytes()[:1000]),
    "a flipped byte": flip_a_byte,
    "no fields": lambda path: torch.save([1], path),
}


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_checkpoint_is_told_in_one_line(damage: Damage, folder: Path) -> None:
    unfinished(folder)
    damage(folder / checkpoint.LATEST_CHECKPOINT)
    with pytest.raises(UserError, match=r"latest\.pt is damaged: start again with resume=false"):
        played(f"{SETTING} resume=true", folder)


def without_field(path: Path) -> None:
    fields = torch.load(path, weights_only=True)
    del fields["metrics_sum"]
    torch.save(fields, path)


def without_state(path: Path) -> None:
    saved = checkpoint.load(path.parents[1])
    assert saved is not None
    del saved.strategy["movement"]
    saved.save(path.parents[1])


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (without_field, r"latest\.pt is of another version: start again with resume=false"),
        (without_state, r"latest\.pt lacks 'movement' of FedAvg, so it is of another version: start again"),
    ],
)
def test_a_checkpoint_of_another_version_is_told_in_one_line(
    change: Damage, line: str, folder: Path
) -> None:
    unfinished(folder)
    change(folder / checkpoint.LATEST_CHECKPOINT)
    with pytest.raises(UserError, match=line):
        played(f"{SETTING} rounds=9 resume=true", folder)


@pytest.mark.slow
@pytest.mark.parametrize("text", ['{"status": "fini', "null", "[1]", ""])
def test_a_run_whose_account_is_damaged_is_not_finished(text: str, folder: Path) -> None:
    assert resume.is_finished(Experiment(SETTING), folder)
    (folder / "environment.json").write_text(text)
    assert not resume.is_finished(Experiment(SETTING), folder)


def without_rows(path: Path) -> None:
    path.write_text("round,split,model,metric,value\n")


def zeroed(path: Path) -> None:
    path.write_bytes(b"\0" * path.stat().st_size)


@pytest.mark.exhaustive
@pytest.mark.parametrize("damage", [without_rows, zeroed, os.remove])
def test_lost_rows_are_noticed(damage: Damage, folder: Path) -> None:
    unfinished(folder)
    damage(folder / "metrics.csv")
    with pytest.raises(UserError, match="lost rows since the checkpoint"):
        played(f"{SETTING} resume=true", folder)


@pytest.mark.slow
@pytest.mark.parametrize("damage", [without_rows, os.remove])
def test_a_finished_run_without_its_rows_is_none(damage: Damage, whole: Path, folder: Path) -> None:
    damage(folder / "metrics.csv")
    assert not resume.is_finished(Experiment(SETTING), folder)
    (folder / checkpoint.LATEST_CHECKPOINT).unlink()
    assert launch(*SETTING.split(), "resume=true", f"hydra.run.dir={folder}") == 0
    assert lines_in(folder) == lines_in(whole)


class Killed(BaseException):
    """What SIGKILL would do at this point."""


@pytest.mark.slow
def test_a_new_start_that_is_killed_at_once_is_not_the_finished_run_before_it(
    whole: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = folder / "environment.json"

    def laid_out(self: run_folder.RunFolder, saved: object) -> None:
        seen.append(json.loads(account.read_text())["status"])
        (folder / "metrics.csv").write_text("")
        monkeypatch.setattr(run_folder.RunFolder, "_save", lambda self, environment: None)  # it is dead
        raise Killed

    seen: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(run_folder.RunFolder, "_lay_out", laid_out)
        with pytest.raises(Killed):
            played(f"{SETTING} resume=false", folder)
    monkeypatch.undo()
    assert seen == ["running"]
    assert not resume.is_finished(Experiment(SETTING), folder)


@pytest.mark.slow
def test_a_figure_that_cannot_be_written_is_no_failure(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "figures").write_text("in the way")
    played(SETTING, tmp_path)
    assert json.loads((tmp_path / "environment.json").read_text())["status"] == "finished"
    assert "no figure: " in caplog.text


@pytest.mark.slow
def test_an_unfinished_run_of_another_configuration_is_not_thrown_away(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With or without a checkpoint; what has trained no round yet is no loss."""
    unfinished(folder)
    rows = (folder / "metrics.csv").read_text()
    other = [*f"{SETTING} seed=1 resume=true".split(), f"hydra.run.dir={folder}"]
    for exists in (True, False):
        if not exists:
            shutil.rmtree(folder / "checkpoint")
        assert launch(*other) == 2
        assert "belongs to a run with another configuration" in capsys.readouterr().err
        assert (folder / "metrics.csv").read_text() == rows
    begun = [line for line in rows.splitlines() if line.startswith(("round,", "0,"))]
    (folder / "metrics.csv").write_text("\n".join(begun) + "\n")
    assert launch(*other) == 0


@pytest.mark.slow
def test_another_run_in_the_same_folder_keeps_nothing_of_the_first(tmp_path: Path) -> None:
    setting = "num_nodes=2 rounds=1 model=softmax"
    played(f"{setting} evaluation.per_class=true save=last", tmp_path)
    kept = {"per_class.csv", "confusion.csv", "model.safetensors"}
    assert kept <= {path.name for path in tmp_path.iterdir()}
    played(f"{setting} seed=1 resume=false", tmp_path)
    assert not kept & {path.name for path in tmp_path.iterdir()}


@pytest.mark.slow
def test_a_run_without_its_account_is_begun_again_with_a_word(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    monkeypatch.setattr(logger, "warning", lines.append)
    (folder / "environment.json").unlink()
    shutil.rmtree(folder / "checkpoint")
    before = (folder / "metrics.csv").read_text()
    assert launch(*SETTING.split(), "resume=true", f"hydra.run.dir={folder}") == 0
    assert f"{folder}: environment.json is missing; the run is taken for unfinished" in lines
    assert before.splitlines()[1] in (folder / "metrics.csv").read_text()


@pytest.mark.slow
def test_a_finished_run_says_that_its_model_is_gone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["num_nodes=2", "rounds=1", "model=softmax", "save=last", f"hydra.run.dir={tmp_path}/run"]
    assert launch(*arguments) == 0
    (tmp_path / "run" / "model.safetensors").unlink()
    capsys.readouterr()
    assert launch(*arguments, "resume=true") == 0
    assert "(it ran without save=last: to have that, resume=false)" in capsys.readouterr().out
