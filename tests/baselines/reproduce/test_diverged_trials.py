"""A trial that has diverged is over: its number is what it is, and nobody runs it again."""

import json
from pathlib import Path

import pandas as pd
import pytest

from baselines.experiment.identity import versions
from baselines.reproduce import campaign
from baselines.reproduce.__main__ import main
from baselines.reproduce.results import is_finished
from helpers.finished_runs import finished_run, trials_in

COMMAND = ["tiny", "table1", "--seeds", "0"]


def diverged(folder: Path) -> None:
    """Let a finished run end in NaN, as its own files say."""
    account = json.loads((folder / "environment.json").read_text())
    (folder / "environment.json").write_text(json.dumps({**account, "status": "diverged"}))


def test_its_number_is_kept_and_it_is_not_run_again(
    papers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials = trials_in(tmp_path)
    for trial in trials:
        diverged(finished_run(trial, 0.75, versions()))
        assert is_finished(trial)
    monkeypatch.setattr(campaign, "_process", lambda trial: pytest.fail("a trial is run again"))
    assert main([*COMMAND, "--output", str(tmp_path)]) == 0
    rows = pd.read_csv(papers / "tiny" / "ours" / "table1.csv", dtype=str)
    assert set(rows.value) == {"75"}


class Ended:
    """A process that has ended as a run does that has diverged."""

    def poll(self) -> int:
        return 1


def test_its_exit_status_makes_no_failure_of_it(papers: Path, tmp_path: Path) -> None:
    from rich.console import Console

    from baselines.reproduce.campaign import Display

    one, two, *_ = trials_in(tmp_path)
    diverged(finished_run(one, 0.75, versions()))
    two.folder.mkdir(parents=True)
    (two.folder / campaign.LOG).write_text("error: the disk is full\n")
    under_way = campaign.Running(2, is_finished, Display([one, two], Console(quiet=True)))
    under_way._processes = {trial.folder.name: (trial, Ended()) for trial in (one, two)}  # type: ignore[misc]
    with under_way.display:
        under_way._look()
    assert [trial for trial, _ in under_way.failed] == [two]
