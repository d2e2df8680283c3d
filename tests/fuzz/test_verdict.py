"""The judge of the fuzzed commands: what it must not let pass."""

from pathlib import Path

import pytest

from helpers.fuzz import configurations
from helpers.fuzz.command import Ended, ended
from helpers.fuzz.drawn_overrides import Case
from helpers.fuzz.drawn_values import of_another_kind
from helpers.fuzz.verdict import died, not_one_line

CASE = Case(("mask=and", "mask.tau=abc"), refused="mask.tau=abc")
LINE = "error: mask.tau=abc is out of range: expected a number\n"
HEADING = "round,split,model,metric,value\n"


@pytest.mark.parametrize(
    ("outcome", "fault"),
    [
        (Ended(1, "", "", "TypeError: no (x.py:1)"), "traceback: TypeError"),
        (Ended(2, "", f"Traceback (most recent call last):\n{LINE}"), "traceback: error"),
        (Ended(1, "", LINE), "status 1: error"),
        (Ended(130, "", ""), "status 130: without a word"),
        (Ended(2, "", f"Error executing job\n{LINE}"), "2 lines"),
        (Ended(2, "", ""), "0 lines"),
        (Ended(2, "", "error: 'abc' is no number\n"), "names nothing"),
        (Ended(0, "", ""), "accepted: mask.tau=abc"),
        (Ended(None, "", ""), "accepted: mask.tau=abc"),
        (Ended(2, "", LINE), ""),
    ],
)
def test_a_run_that_ends_otherwise_than_promised_is_found(
    outcome: Ended, fault: str, tmp_path: Path
) -> None:
    assert configurations.fault(outcome, CASE, tmp_path).startswith(fault)
    assert bool(fault) or not configurations.fault(outcome, CASE, tmp_path)


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_results_that_are_not_finite_are_found(value: str, tmp_path: Path) -> None:
    metrics = tmp_path / "metrics.csv"
    metrics.write_text(f"{HEADING}0,test,global,loss,1.0\n")
    assert not configurations.fault(Ended(0, "", ""), Case(()), tmp_path)
    metrics.write_text(f"{HEADING}0,test,global,loss,{value}\n")
    assert configurations.fault(Ended(0, "", ""), Case(()), tmp_path).startswith("not finite")


def test_the_usage_that_argparse_prints_is_no_line_too_many() -> None:
    message = (
        "usage: compare [-h] folders\n               [--best N]\ncompare: error: argument --best: invalid\n"
    )
    assert not not_one_line(Ended(2, "", message), [])
    assert not_one_line(Ended(2, "", "usage: compare\nwarning\nand more\n"), [])


def test_a_command_that_raises_or_does_not_end_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("helpers.fuzz.command.PATIENCE", 0.2)
    assert died(ended(lambda: 1 // 0)).startswith("traceback: ZeroDivisionError")
    assert died(ended(endless)).startswith("traceback: Hung")
    assert died(ended(lambda: len(bytearray(1 << 36)) * 0)).startswith("traceback: MemoryError")


def test_who_is_interrupted_does_not_go_on_to_the_next_command() -> None:
    with pytest.raises(KeyboardInterrupt):
        ended(lambda: 130)


def endless() -> int:
    while True:
        pass


@pytest.mark.parametrize(
    ("default", "value", "wrong"),
    [
        (True, "[false]", True),
        (False, "1", False),
        (1, "1.5", True),
        (1, "-1", False),
        (0.5, "true", True),
        (0.5, "1", False),
        ("${seed}", "abc", True),
        ({"a": 1}, "[0.1]", True),
        (None, "abc", False),
    ],
)
def test_a_value_that_no_setting_of_its_kind_takes_is_known(
    default: object, value: str, wrong: bool
) -> None:
    assert of_another_kind(default, value) == wrong
