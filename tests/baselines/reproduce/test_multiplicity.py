"""Many pairs are tested: Holm's correction over a claim's pairs, and one test over all of them."""

from dataclasses import replace
from math import nan

import pytest

from baselines.reproduce import claims
from baselines.reproduce.claims import Claim
from baselines.reproduce.findings import (
    Comparison,
    corrected_verdicts,
    pooled_gains,
    student_interval,
)


def pair(*gains: float, runs: str = "", points: float | None = 100.0) -> Comparison:
    """Return a pair of cells whose better one gains so much, seed by seed; two letters name its runs."""
    return Comparison(
        {},
        None,
        sum(gains) / len(gains),
        student_interval(gains),
        seeds=len(gains),
        runs=tuple(frozenset(letter) for letter in runs),
        points=points,
        by_seed=dict(enumerate(gains)),
    )


def test_a_pair_that_is_decided_alone_may_not_be_among_many() -> None:
    """Gains of 2, 3 and 4: t = 5.196 on two degrees of freedom, p = 0.0351, which two more tests triple."""
    decided, close = pair(2, 3, 4), pair(1, -1, 0.5)
    assert decided.p_value == pytest.approx(0.0351, abs=1e-4)
    assert decided.verdict == "confirmed"
    assert corrected_verdicts([decided]) == ["confirmed"]
    assert corrected_verdicts([decided, close, close]) == ["undecided"] * 3
    untested = [
        pair(9),
        replace(pair(5, 5), seeded=False, interval=(5, 5)),
        Comparison({}, None, None, None),
    ]
    assert corrected_verdicts([decided, *untested]) == ["confirmed", "undecided", "confirmed", "not run"]


def test_a_pair_that_has_diverged_is_no_test() -> None:
    decided, diverged = pair(2, 3, 4), pair(1, nan, 2)
    assert diverged.p_value is None
    assert corrected_verdicts([decided, diverged, diverged]) == ["confirmed", "undecided", "undecided"]


def test_a_claim_has_the_verdict_of_the_pairs_that_survive() -> None:
    ahead, behind, sure = pair(2, 3, 4), pair(-2, -3, -4), pair(-2, -2.001, -2.002)
    assert Claim("gma", "x", (), (ahead,)).verdict == "confirmed"
    assert Claim("gma", "x", (), (ahead, ahead)).verdict == "undecided"  # 0.0351 twice
    assert Claim("gma", "x", (), (ahead, sure)).verdict == "1 confirmed, 1 contradicted"
    assert Claim("gma", "x", (), (ahead, sure, pair(0, 1, -1))).verdict == "1 contradicted, 2 undecided"
    assert Claim("gma", "x", (), (ahead, behind, pair(9))).counts == {
        "confirmed": 0,
        "contradicted": 0,
        "undecided": 3,
        "not run": 0,
    }


def test_a_pair_of_one_table_has_the_verdict_of_the_claims_pair() -> None:
    """Another table may have it on more seeds; the family is the whole claim's."""
    few, more, other = pair(2, 3, 4, runs="ax"), pair(2, 3, 4, 3, runs="ax"), pair(1, -1, 0.5, runs="by")
    assert few.verdict == "confirmed"
    assert Claim("gma", "x", (), (few, other)).verdict_of(few) == "undecided"
    claim = Claim("gma", "x", (), (more, other))
    assert claim.verdict_of(few) == "confirmed"  # on four seeds p = 0.0053, twice that 0.0107
    assert claim.verdict_of(other) == "undecided"


def test_one_test_over_all_pairs_takes_each_as_the_mean_of_its_seeds() -> None:
    """Gains of 1, 2 and 3 points: mean 2, standard error 1/sqrt(3), Student's t of two degrees 4.30265."""
    pairs = (pair(0.01), pair(0.01, 0.03), pair(0.03), Comparison({}, None, None, None, points=100.0))
    pooled = Claim("gma", "x", (), pairs, general=True).pooled
    assert pooled is not None
    assert (pooled.mean, pooled.pairs, pooled.verdict) == (pytest.approx(2.0), 3, "undecided")
    assert pooled.interval == pytest.approx((2 - 4.302653 / 3**0.5, 2 + 4.302653 / 3**0.5))
    assert Claim("gma", "x", (), pairs).pooled is None  # not said of all at once
    assert Claim("gma", "x", (), pairs[:1], general=True).pooled is None


def test_pairs_that_share_a_run_are_one_observation() -> None:
    chained = [pair(0.01, runs="ab"), pair(0.05, runs="cd"), pair(0.03, runs="bc"), pair(0.07, runs="xy")]
    assert sorted(pooled_gains(chained)) == pytest.approx([3.0, 7.0])
    assert pooled_gains([*chained, pair(1, points=None)]) == []  # a loss has no percentage points


def test_the_page_shows_both(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Claim("gma", "x", (), (pair(0.02, 0.03, 0.04), pair(-0.01, 0.01, 0.005)), general=True)
    monkeypatch.setattr(claims, "find_claims", lambda paper: [one])
    row = claims.page_claims("gma").splitlines()[2]
    assert row.startswith("| x | undecided | 2 of 2 | 2 | 3 | undecided: +1.58 (")
