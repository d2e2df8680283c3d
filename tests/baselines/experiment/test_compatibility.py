"""The table of what does not go together: each row is refused where it says, and the page has all of them."""

import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
from hydra.utils import get_object

from baselines import run
from baselines.errors import UserError
from baselines.experiment import compatibility
from baselines.experiment.compatibility import CONFLICTS, ONE_BY_ONE, PAGE, REFUSED_ELSEWHERE
from baselines.experiment.experiment import Experiment
from strategies.shared.checks import Conflict


def name_of(row: Conflict) -> str:
    return f"{row.choice} | {row.other}"


def refusal(example: str, folder: Path) -> Exception:
    """Return what running an example raises."""
    with pytest.raises((UserError, ValueError)) as caught:
        run.run_experiment(example, folder)
    return caught.value


@pytest.mark.parametrize("row", CONFLICTS, ids=name_of)
def test_an_experiment_that_makes_both_choices_is_refused(row: Conflict, tmp_path: Path) -> None:
    assert row.find is not None
    message = row.find(Experiment(row.example))
    assert message is not None
    assert str(refusal(row.example, tmp_path)) == message


@pytest.mark.parametrize("row", REFUSED_ELSEWHERE, ids=name_of)
def test_what_refuses_by_itself_is_what_the_row_names(row: Conflict, tmp_path: Path) -> None:
    named: Callable[..., object] = get_object(row.checked_by)
    error: BaseException | None = refusal(row.example, tmp_path)
    passed = set()
    while error is not None:
        passed |= {frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)}
        error = error.__cause__ or error.__context__
    function = getattr(named, "__func__", named)  # of a class method
    assert function.__code__ in passed  # type: ignore[attr-defined]


def test_no_row_holds_for_the_defaults() -> None:
    plain = Experiment("")
    assert [row.choice for row in CONFLICTS if row.find and row.find(plain)] == []


def test_a_row_has_one_check() -> None:
    for row in (*CONFLICTS, *REFUSED_ELSEWHERE, *ONE_BY_ONE):
        assert (row.find is None) != (not row.checked_by), name_of(row)
    assert all(get_object(row.checked_by) for row in ONE_BY_ONE if row.checked_by)


def test_the_page_has_the_table() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert compatibility.format_table() in text
    assert compatibility.page_with_table(text) == text, "run python -m baselines.experiment.compatibility"
