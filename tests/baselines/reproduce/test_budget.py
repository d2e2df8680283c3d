"""Which runs come first when time is short, and what a deadline does."""

import shlex
import sys
import time
from pathlib import Path
from unittest import mock

import pytest
from rich.console import Console

from baselines.errors import UserError
from baselines.reproduce import campaign
from baselines.reproduce.__main__ import main
from baselines.reproduce.campaign import Display, Running, choose_most_telling, seconds_in
from baselines.reproduce.paper_tables import Cell
from baselines.reproduce.plan import Trial, plan, table_of


@pytest.fixture
def trials(papers: Path, tmp_path: Path) -> list[Trial]:
    table = table_of("tiny", "table1")
    return plan(table, table.cells(), [0, 1], "full", [], tmp_path)


def names(trials: list[Trial]) -> list[str]:
    return [" ".join([*trial.cell.keys.values(), str(trial.seed)]) for trial in trials]


def chosen(trials: list[Trial], missing: list[Trial]) -> list[str]:
    return names(choose_most_telling(table_of("tiny", "table1"), trials, missing))


def test_a_pair_comes_first_then_its_second_seed_then_what_nothing_speaks_of(trials: list[Trial]) -> None:
    """The table's one finding compares fedexp with fedavg; at rate 0.1 only fedavg was printed."""
    ordered = chosen(trials, trials[::-1])
    assert set(ordered[:2]) == {"0.2 fedexp 0", "0.2 fedavg 0"}
    assert set(ordered[2:4]) == {"0.2 fedexp 1", "0.2 fedavg 1"}
    assert ordered[4:] == ["0.1 fedavg 0", "0.1 fedavg 1"]


def test_half_a_pair_is_completed_first(papers: Path, tmp_path: Path) -> None:
    pairs = [(("b",), ("a",)), (("d",), ("c",))]
    made = [trial_of(name, seed, tmp_path) for name in "abcd" for seed in (0, 1)]
    finished = {"c 0", "a 1"}
    missing = [trial for trial in made if names([trial])[0] not in finished]
    with mock.patch.object(campaign, "pairs", return_value=pairs):
        assert chosen(made, missing) == ["d 0", "b 0", "a 0", "b 1", "d 1", "c 1"]


def trial_of(name: str, seed: int, folder: Path) -> Trial:
    return Trial(Cell({"method": name}, ()), seed, "", (), 1, "", folder / f"{name}{seed}")


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
    assert time.monotonic() - began < campaign.END_SECONDS
    assert run.failed == []  # it goes on another time
    assert [trial.folder.exists() for trial in trials].count(True) == 1
