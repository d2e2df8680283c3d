"""How many runs at a time: from planted rates, and measured in real processes."""

from pathlib import Path

import pytest
from rich.console import Console

from baselines.reproduce import campaign, concurrency
from baselines.reproduce.options import parser
from baselines.reproduce.plan import Trial, plan, table_of


@pytest.fixture
def trial(papers: Path, tmp_path: Path) -> Trial:
    table = table_of("tiny", "table1")
    return plan(table, table.cells(), [0], "full", [], tmp_path)[0]


@pytest.mark.parametrize(
    ("rates", "most", "expected"),
    [
        ({1: 10.0, 2: 11.0}, 8, (1, 1.0)),  # a tenth more: not worth it
        ({1: 10.0, 2: 19.0, 4: 30.0, 8: 31.0}, 16, (4, 3.0)),
        ({1: 10.0, 2: 20.0, 4: 0.0}, 16, (2, 2.0)),  # four do not fit the card
        ({1: 10.0, 2: 20.0}, 3, (2, 2.0)),
        ({1: 10.0}, 1, (1, 1.0)),
        ({1: 0.0, 2: 0.0}, 8, (1, 1.0)),  # the runs will say why
    ],
)
def test_twice_as_many_as_long_as_it_pays(
    rates: dict[int, float], most: int, expected: tuple[int, float]
) -> None:
    assert concurrency.fastest_concurrency(rates.__getitem__, most) == expected


@pytest.mark.slow
def test_a_real_process_steps(trial: Trial) -> None:
    assert concurrency._rate(trial, 1) > 1


def test_one_that_does_not_come_up_does_not_fit(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concurrency, "_line", lambda _: "")  # as of a process that has ended
    assert concurrency._rate(trial, 1) == 0


@pytest.mark.parametrize(
    ("told", "kind", "jobs"),
    [
        ([], "cuda", (1, 1.0)),
        (["--budget", "9m"], "cuda", (4, 3.0)),
        (["--budget", "9m"], "cpu", (1, 1.0)),
        (["--budget", "9m", "--jobs", "2"], "cuda", (2, 2.0)),
        (["--jobs", "auto"], "cpu", (4, 3.0)),
    ],
)
def test_it_is_measured_for_a_budget_on_a_gpu_or_when_asked(
    told: list[str], kind: str, jobs: tuple[int, float], trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Found:
        type = kind

    monkeypatch.setattr(campaign.device, "device_of", lambda _: Found)
    monkeypatch.setattr(campaign.device, "chosen", lambda _: None)
    monkeypatch.setattr(campaign, "measure_concurrency", lambda _: (4, 3.0))
    options = parser("").parse_args(told)
    assert campaign._jobs(options, trial, Console(quiet=True)) == jobs
