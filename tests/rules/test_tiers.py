"""Every test runs in .ci/run, in scripts/test or in scripts/test-slow, and in one of them alone."""

import re
from itertools import product

import pytest

from helpers.checkout import ROOT


def chosen(script: str) -> str:
    """Return the marks that a script's tests have, as pytest's -m takes them."""
    (expression,) = re.findall(r"-m pytest -m '([^']*)'", (ROOT / "scripts" / script).read_text())
    return str(expression)


@pytest.mark.parametrize(("slow", "exhaustive"), product((False, True), repeat=2))
def test_a_test_is_in_one_tier(slow: bool, exhaustive: bool) -> None:
    marks = {"slow": slow, "exhaustive": exhaustive}
    tiers = [eval(chosen(script), {}, marks) for script in ("test", "test-slow")]
    assert tiers == [not slow and not exhaustive, slow or exhaustive]


def test_the_gate_runs_both_tiers() -> None:
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    assert {"scripts/test", "scripts/test-slow"} <= set(lines)


@pytest.mark.exhaustive
@pytest.mark.parametrize("case", range(3))
def test_the_first_case_is_in_the_fast_tier(case: int, request: pytest.FixtureRequest) -> None:
    marked = request.node.get_closest_marker("exhaustive") is not None
    assert marked == (case > 0)
