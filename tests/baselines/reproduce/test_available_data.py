"""Runs whose data set is not here are named once, and not begun."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from omegaconf import DictConfig
from rich.console import Console

from baselines.datasets import Dataset
from baselines.errors import UserError
from baselines.experiment import data, experiment
from baselines.reproduce.__main__ import main
from baselines.reproduce.campaign import with_available_data
from baselines.reproduce.plan import Trial, plan, table_of


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Let all data sets but the digits be away; return how often each was asked for."""
    requests = Counter[str]()

    def dataset_of(cfg: DictConfig) -> Dataset:
        requests[str(cfg.load._target_)] += 1
        if cfg.load._target_ != "baselines.datasets.digits":
            raise UserError("no such data here")
        return data.dataset_of(cfg)

    monkeypatch.setattr(experiment, "dataset_of", dataset_of)
    return requests


def trials_of(paper: str, name: str, overrides: list[str]) -> list[Trial]:
    table = table_of(paper, name)
    return plan(table, table.cells(), [0, 1], "full", overrides, Path("runs"))


def of_cell_with(override: str, trial: Trial) -> Trial:
    cell = replace(trial.cell, overrides=(*trial.cell.overrides, override))
    return replace(trial, cell=cell, overrides=(*trial.overrides, override))


@pytest.mark.slow
def test_the_others_are_counted_in_one_line(papers: Path, requests: Counter[str]) -> None:
    digits = trials_of("tiny", "table1", ["dataset=digits"])
    away = [of_cell_with("dataset=mnist", trial) for trial in digits[:3]]
    out = Console(record=True, width=200)
    assert with_available_data([*away, *digits], out) == digits
    assert out.export_text() == "3 runs cannot start: no such data here\n"


@pytest.mark.slow
def test_a_data_set_is_asked_for_once(papers: Path, requests: Counter[str]) -> None:
    trials = trials_of("tiny", "table1", ["dataset=mnist"])
    with pytest.raises(UserError, match=r"^no such data here$"):
        with_available_data(trials, Console())
    assert requests.total() == 1


@pytest.mark.slow
def test_what_else_is_wrong_is_left_to_the_run(papers: Path, requests: Counter[str]) -> None:
    trials = trials_of("tiny", "figure1", ["dataset=digits"])
    assert any("client.optimizer.lr=-1" in trial.overrides for trial in trials)
    assert with_available_data(trials, Console()) == trials


def test_a_table_without_its_data_is_a_mistake_in_one_line(
    papers: Path, requests: Counter[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "runs"
    assert main(["tiny", "table1", "dataset=mnist", "--output", str(output)]) == 2
    printed, error = capsys.readouterr()
    assert (printed, error) == ("", "error: no such data here\n")
    assert not output.exists()
    assert not (papers / "tiny" / "ours").exists()
