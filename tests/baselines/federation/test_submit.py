"""What submit refuses before anything is sent, and what a deployment's log says of a user's mistake."""

import logging
import sys
from pathlib import Path

import pytest
from flwr.serverapp import Grid

from baselines import apps
from baselines.errors import UserError
from baselines.federation import submit
from baselines.federation.__main__ import main
from strategies.shared.flower_private import server_context

pytestmark = pytest.mark.runtime


@pytest.fixture
def lakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the SuperLink ``lakes`` be the one that Flower's configuration names."""
    (tmp_path / "config.toml").write_text('[superlink.lakes]\naddress = "a"\n')
    monkeypatch.setenv("FLWR_HOME", str(tmp_path))


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere", "rounds=1"], "has no [superlink.nowhere]: expected lakes"),
        (["lakes", "rounds=-1"], "rounds=-1"),
        (["lakes", "--output", "/out", "rounds=-1"], "rounds=-1"),
        (["lakes", "model=softmax", "--output", "/out", "rounds=-1"], "rounds=-1"),
        (["lakes", "=3"], "cannot read =3"),
        (["lakes", "dataset=local", "dataset.schema=/nowhere.yaml"], "/nowhere.yaml cannot be read"),
        (["lakes", "strategy=fedavgg"], "fedavgg"),
        (["lakes", "mask.tau=[1"], "mask.tau=[1"),
        (["lakes", "hydra.run.dir=/out"], "hydra.run.dir is not read by submit: give --output NAME"),
        (["lakes", "hydra/launcher=joblib"], "hydra/launcher is not read by submit: leave it out"),
        (
            ["lakes", "runtime=ray"],
            "runtime=ray: what submit sends is played by the SuperLink's sites: leave",
        ),
        (["lakes", "+runtime.cpus=2"], "by the SuperLink's sites: leave runtime.cpus out"),
        (
            ["lakes", "resume=true", "checkpoint_every=1"],
            "resume=true: give the folder of the run",
        ),
        (["lakes", "seed=0,1"], "seed=0,1 means several experiments: submit sends one at a time"),
        (["lakes", "rounds=range(1,3)"], "rounds=range(1,3) means several experiments"),
        (["lakes", "hydra.searchpath=[file:///nowhere]"], "hydra.searchpath is not read by submit"),
        (["lakes", "--output", "../out"], "--output ../out: expected a folder below"),
    ],
)
@pytest.mark.usefixtures("lakes")
def test_a_mistake_is_found_before_anything_is_sent(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["submit", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert message in line


def test_a_mistake_in_a_deployment_is_one_line_of_its_log(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("flwr")
    log.addHandler(caplog.handler)
    try:
        with pytest.raises(UserError) as caught:
            apps.server_app(_Nobody(), server_context({"overrides": "rounds=-1"}))
        log.error("ServerApp raised an exception", exc_info=caught.value)
        log.error("something else", exc_info=KeyError("kept"))
    finally:
        log.removeHandler(caplog.handler)
        log.removeFilter(apps._one_line)
    first, second = caplog.records[0], caplog.records[-1]
    assert first.getMessage().startswith(f"{apps.REFUSAL_START} rounds=-1")
    assert first.exc_info is None
    assert second.exc_info is not None


@pytest.mark.parametrize(
    ("logged", "message"),
    [
        ("ERROR :  the run has diverged: lower it", "error: run 7: the run has diverged: lower it"),
        ("ERROR :  something", "error: run 7: finished:failed; its log: flwr log 7 lakes"),
    ],
)
@pytest.mark.usefixtures("lakes")
def test_a_run_that_has_diverged_there_ends_so_here(
    logged: str, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = f"Successfully started run 7\n{logged}\n"
    monkeypatch.setattr(submit.commands, "submit", lambda *_: [sys.executable, "-c", f"print({log!r})"])
    monkeypatch.setattr(submit, "_has_ended", lambda *_: "finished:failed")
    assert main(["submit", "lakes", "rounds=1", "model=softmax"]) == 1
    assert capsys.readouterr().err.splitlines() == [message]


class _Nobody(Grid):
    """Flower's grid of a SuperLink, which nothing is asked of here."""

    run = set_run = create_message = get_node_ids = None  # type: ignore[assignment]
    push_messages = pull_messages = send_and_receive = None  # type: ignore[assignment]
