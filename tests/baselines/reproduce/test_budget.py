"""Which runs come first when time is short, and what a deadline does."""

import shlex
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from baselines.errors import UserError
from baselines.reproduce import campaign
from baselines.reproduce.__main__ import main
from baselines.reproduce.campaign import Display, Running, most_telling, seconds_in
from baselines.reproduce.plan import Trial, plan, table_of


@pytest.fixture
def trials(papers: Path, tmp_path: Path) -> list[Trial]:
    table = table_of("tiny", "table1")
    return plan(table, table.cells(), [0, 1], "full", [], tmp_path)


def names(trials: list[Trial]) -> list[str]:
    return [" ".join([*trial.cell.keys.values(), str(trial.seed)]) for trial in trials]


def chosen(
    trials: list[Trial], missing: list[Trial], seconds: float, dear: str = ""
) -> tuple[list[str], int]:
    def cost(trial: Trial) -> float:
        return 100.0 if dear and dear in " ".join(trial.cell.keys.values()) else 10.0

    ordered, fitting = most_telling(table_of("tiny", "table1"), trials, missing, cost, seconds)
    return names(ordered), fitting


def test_a_pair_comes_first_then_its_second_seed_then_what_nothing_speaks_of(trials: list[Trial]) -> None:
    """The table's one finding compares fedexp with fedavg; at rate 0.1 only fedavg was printed."""
    ordered, fitting = chosen(trials, trials, 1000.0)
    assert set(ordered[:2]) == {"0.2 fedexp 0", "0.2 fedavg 0"}
    assert set(ordered[2:4]) == {"0.2 fedexp 1", "0.2 fedavg 1"}
    assert ordered[4:] == ["0.1 fedavg 0", "0.1 fedavg 1"]
    assert fitting == 6


def test_half_a_pair_is_cheaper(trials: list[Trial]) -> None:
    missing = [trial for trial in trials if trial.cell.keys["method"] == "fedavg"]
    ordered, fitting = chosen(trials, missing, 25.0)
    assert ordered[:2] == ["0.2 fedavg 0", "0.2 fedavg 1"]
    assert fitting == 2


def test_what_does_not_fit_comes_last(trials: list[Trial]) -> None:
    ordered, fitting = chosen(trials, trials, 25.0, dear="fedexp")
    assert fitting == 2
    assert all("fedavg" in name for name in ordered[:2])
    assert sorted(ordered) == sorted(names(trials))


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90.0), ("40m", 2400.0), ("1.5h", 5400.0), ("0m", None), ("40", None)]
)
def test_a_budget_is_a_time(text: str, seconds: float | None, capsys: pytest.CaptureFixture[str]) -> None:
    if seconds is not None:
        assert seconds_in(text) == seconds
        return
    with pytest.raises(UserError, match="expected a time such as 90s, 40m"):
        seconds_in(text)
    assert main(["tiny", "table1", "--budget", text]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.slow
def test_a_deadline_ends_what_runs_and_starts_nothing_more(
    trials: list[Trial], monkeypatch: pytest.MonkeyPatch
) -> None:
    sleep = shlex.join([sys.executable, "-c", "import time; time.sleep(60)"])
    arguments = property(lambda _: shlex.split(sleep))
    process = campaign.subprocess.Popen
    monkeypatch.setattr(Trial, "arguments", arguments)
    monkeypatch.setattr(
        campaign.subprocess, "Popen", lambda command, **more: process(shlex.split(sleep), **more)
    )
    began = time.monotonic()
    run = Running(1, lambda _: False, Display(trials, Console(quiet=True)), began + 0.5)
    run.run(trials)
    assert time.monotonic() - began < campaign.PATIENCE
    assert run.failed == []  # it goes on another time
    assert [trial.folder.exists() for trial in trials].count(True) == 1
