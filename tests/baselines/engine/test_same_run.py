"""Which run a folder holds: its numbers as they count, not as they are written; and as it is now."""

import shutil
from pathlib import Path

import pytest

from baselines.engine import resume, rounds
from baselines.errors import UserError
from baselines.experiment import experiment
from helpers.runs import launch, played

SMALL = ["model=softmax", "num_nodes=3", "client.optimizer.lr=1", "checkpoint_every=1"]
OTHERWISE = ["model=softmax", "num_nodes=3", "client.optimizer.lr=1.0", "client.optimizer.momentum=0"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a finished run of two rounds with a checkpoint."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    assert launch(*SMALL, "rounds=2", "save=last", f"hydra.run.dir={folder}") == 0
    return folder


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


@pytest.mark.slow
def test_a_number_written_otherwise_is_the_same_run(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Finished, and with more rounds from its checkpoint; then under the first way again."""
    again = [*OTHERWISE, "resume=true", "checkpoint_every=1", f"hydra.run.dir={run}"]
    assert launch(*again, "rounds=2") == 0
    assert capsys.readouterr().out.startswith("finished already")
    assert launch(*again, "rounds=3") == 0
    assert "finished already" not in capsys.readouterr().out
    assert launch(*SMALL, "rounds=3", "resume=true", f"hydra.run.dir={run}") == 0
    assert capsys.readouterr().out.startswith("finished already")


def test_a_run_goes_on_where_its_nodes_are_reached_otherwise(tmp_path: Path) -> None:
    """A cluster that was started anew has another address."""
    first = ["runtime=ray", "runtime.retries=1", "runtime.address=one:1"]
    setup, then = experiment.load(" ".join([*SMALL, *first])), tmp_path / "config.yaml"
    then.write_text(setup.configuration())
    written = resume._written(tmp_path)
    other = experiment.load(" ".join([*SMALL, "runtime=ray", "runtime.address=two:2"]))
    assert other.identity() != setup.identity() == other.identity(like=written)
    assert resume._find_differing(other, written) == []
    shared = experiment.load(" ".join([*SMALL, "runtime=ray", "runtime.partial_sums=true"]))
    assert shared.identity(like=written) != setup.identity()
    assert resume._find_differing(shared, written) == ["runtime.partial_sums"]


@pytest.mark.slow
def test_another_number_is_another_run(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = ["client.optimizer.momentum=0.5", "resume=true", "rounds=2", f"hydra.run.dir={run}"]
    assert launch(*SMALL, *other) == 2
    assert "another configuration (client.optimizer.momentum)" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("save=best", "(it ran without save=best: to have that, resume=false)"),
        ("logger=tensorboard", "(it ran without that logger: to have that, resume=false)"),
        ("save=best logger=tensorboard", "(it ran without save=best and that logger: to have"),
    ],
)
def test_a_finished_run_says_what_it_has_not_left(
    option: str, message: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("tensorboard")
    assert launch(*SMALL, "rounds=2", "resume=true", f"hydra.run.dir={run}", *option.split()) == 0
    assert message in capsys.readouterr().out
    assert launch(*SMALL, "rounds=2", "resume=true", f"hydra.run.dir={run}", "save=last") == 0
    assert "ran without" not in capsys.readouterr().out


@pytest.mark.slow
def test_what_another_process_has_finished_meanwhile_is_not_computed_again(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was not there when this process looked."""
    lines: list[str] = []
    monkeypatch.setattr(rounds.logger, "warning", lambda text, *values: lines.append(text % values))
    before = (run / "environment.json").read_bytes()
    played(" ".join([*SMALL, "rounds=2", "resume=true"]), run)
    assert (run / "environment.json").read_bytes() == before
    assert lines == [f"another process has finished {run} meanwhile"]
    with pytest.raises(UserError, match="holds a run"):
        played(" ".join([*SMALL, "rounds=2"]), run)


@pytest.mark.slow
def test_a_run_is_looked_at_while_its_folder_is_locked(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else another process could finish it between the look and the lock."""
    seen: list[str] = []

    def looked(*arguments: object) -> None:
        with pytest.raises(UserError, match="another process is running"):
            played(" ".join(SMALL), run)
        seen.append("locked")
        raise UserError("seen")

    monkeypatch.setattr(resume, "find_checkpoint", looked)
    with pytest.raises(UserError, match="seen"):
        played(" ".join([*SMALL, "rounds=3", "resume=true"]), run)
    assert seen == ["locked"]


PLAY = "ADA:\nThe king has lost a silver ring by the river.\n\nBEN:\nMy sister will sell the long letter.\n"
SPEECH = ["dataset=speech", "dataset.load.length=4", "num_nodes=2", "rounds=1", "resume=true"]


@pytest.mark.slow
@pytest.mark.parametrize("state", ["finished", "unfinished"])
def test_other_data_under_the_same_path_are_another_run(
    state: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same data elsewhere are not."""
    play, run = tmp_path / "play.txt", tmp_path / "run"
    play.write_text(PLAY)
    command = [*SPEECH, "model.hidden=8", "checkpoint_every=1", f"hydra.run.dir={run}"]
    assert launch(*command, f"dataset.load.path={play}") == 0
    if state == "unfinished":
        written = (run / "environment.json").read_text()
        (run / "environment.json").write_text(written.replace('"finished"', '"interrupted"'))
    capsys.readouterr()
    moved = Path(shutil.copy(play, tmp_path / "moved.txt"))
    assert launch(*command, f"dataset.load.path={moved}") == 0
    assert ("finished already" in capsys.readouterr().out) == (state == "finished")

    path = play if state == "finished" else moved  # as config.yaml has it
    path.write_text(PLAY.replace("river", "coast"))
    assert launch(*command, f"dataset.load.path={path}") == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert f"belongs to a run with another configuration ({path}, which has changed)" in error
    path.unlink()
    assert launch(*command, f"dataset.load.path={path}") == 2
    assert f"({path}, which cannot be read)" in capsys.readouterr().err
    assert launch(*command, f"dataset.load.path={play if path == moved else moved}") == 0


def test_a_missing_file_is_named_by_whoever_reads_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert launch(*SPEECH, f"dataset.load.path={tmp_path}/none.txt", f"hydra.run.dir={tmp_path}/run") == 2
    assert f"dataset.load.path={tmp_path}/none.txt cannot be read" in capsys.readouterr().err
