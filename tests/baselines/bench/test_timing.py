"""Turns, medians and ratios, from planted timings."""

import csv
from collections.abc import Callable
from pathlib import Path

import pytest

from baselines.bench import report
from baselines.bench.report import Row, Spread, alternate, compared, ratio


def planted(name: str, values: list[float], log: list[str]) -> Callable[[], float]:
    left = iter(values)

    def measure() -> float:
        log.append(name)
        return next(left)

    return measure


def test_contenders_take_turns() -> None:
    log: list[str] = []
    contenders = {
        name: planted(name, values, log) for name, values in {"a": [1.0, 2.0], "b": [3.0, 4.0]}.items()
    }
    assert alternate(contenders, 2) == {"a": [1.0, 2.0], "b": [3.0, 4.0]}
    assert log == ["a", "b", "a", "b"]


def test_a_spread_is_median_least_and_greatest() -> None:
    assert Spread.of([5.0, 1.0, 2.0, 9.0, 3.0]) == Spread(3.0, 1.0, 9.0, 5)


def test_ratios_are_of_the_same_turn() -> None:
    """A busy moment doubles both sides of a turn and leaves the ratio as it is."""
    ours, theirs = [3.0, 6.0, 3.3, 2.7, 3.0], [2.0, 4.0, 2.0, 2.0, 2.0]
    assert ratio(ours, theirs) == Spread(pytest.approx(1.5), pytest.approx(1.35), pytest.approx(1.65), 5)


def test_a_goal_is_for_the_ratio_else_for_the_value() -> None:
    samples = {"ours": [3.0], "loop": [2.0], "flower": [60.0]}
    beside_loop, beside_flower, loop, flower = compared(
        "w", "round", "s", samples, {"ours": {"loop": 1.4, "flower": 0.1}}
    )
    assert (beside_loop.met, beside_flower.met, loop.met, flower.met) == (False, True, None, None)
    alone = Row("w", "ours", "round", "s", Spread.of([3.0]), at_most=3.0)
    assert alone.met is True
    assert alone.goal_text.startswith("≤ 3 s: ")
    assert beside_loop.goal_text.startswith("≤ 1.4x ")


def test_the_files_have_every_row(tmp_path: Path) -> None:
    samples = {"ours": [0.003, 0.004, 0.002], "loop": [0.001, 0.002, 0.001]}
    rows = compared("w", "round", "s", samples, {"ours": {"loop": 2.5}})
    report.write(rows, {"processor": "a | b", "versions": {"torch": "2"}}, tmp_path)
    ours, loop = csv.DictReader((tmp_path / "benchmarks.csv").open(newline=""))
    assert [float(ours[key]) for key in ("median", "low", "high")] == [0.003, 0.002, 0.004]
    assert [float(ours[key]) for key in ("ratio", "ratio_low", "ratio_high")] == [2.0, 2.0, 3.0]
    assert (ours["beside"], ours["repeats"], ours["at_most"], ours["met"]) == ("loop", "3", "2.5", "yes")
    assert (loop["median"], loop["ratio"], loop["met"]) == ("0.001", "", "")
    text = (tmp_path / "benchmarks.md").read_text()
    assert "| w | ours | round | 3 ms (2 to 4) | 2x (2 to 3) loop | ≤ 2.5x loop: met |\n" in text
    assert "- versions: torch: 2\n" in text
