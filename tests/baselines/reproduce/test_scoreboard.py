"""Each claim with its verdict: generated from the tables, on the front page and on each paper's page."""

import itertools
import re
from dataclasses import replace
from pathlib import Path

import pytest

from baselines.experiment.overrides import ROOT
from baselines.reproduce import claims, paper_tables
from baselines.reproduce.claims import Claim
from baselines.reproduce.findings import Comparison


def pair(ours: float | None, spread: float | None, *, seeds: int = 2, departs: bool = False) -> Comparison:
    interval = None if ours is None or spread is None else (ours - spread, ours + spread)
    return Comparison({}, None, ours, interval, departs, seeds)


AHEAD, BEHIND = pair(2.0, 1.0), pair(-2.0, 1.0, seeds=3)
WITHIN, SINGLE, MISSING = pair(0.5, 1.0), pair(9.0, None, seeds=1), pair(None, None, seeds=0)
REDUCED = pair(2.0, 1.0, departs=True)
UNSEEDED = replace(pair(2.0, 0.0, seeds=1), seeded=False)


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        ([AHEAD, AHEAD], "x: agrees in 2 of 2 pairs, ahead in 2 (2 seeds)"),
        ([AHEAD, BEHIND], "x: mixed: agrees in 1, disagrees in 1 of 2 pairs, ahead in 1 (2 to 3 seeds)"),
        ([WITHIN, SINGLE], "x: cannot tell in 2 of 2 pairs, ahead in 2 (1 to 2 seeds)"),
        ([SINGLE, MISSING], "x: cannot tell in 1 of 1 pair, ahead in 1 (1 seed, 1 not run)"),
        ([BEHIND, WITHIN], "x: disagrees in 1, cannot tell in 1 of 2 pairs, ahead in 1 (2 to 3 seeds)"),
        ([UNSEEDED, MISSING], "x: agrees in 1 of 1 pair, ahead in 1 (deterministic, 1 not run)"),
        ([MISSING], "x: not run"),
        ([], "x: not run"),
    ],
)
def test_a_claim_in_one_line(pairs: list[Comparison], said: str) -> None:
    assert claims.claim_line(Claim("gma", "x", ("table4_1",), tuple(pairs))) == said


def test_what_was_run_in_a_reduced_setting_counts_apart() -> None:
    """FedER's own table: its pairs are missing, and a claim of its own has what was run."""
    whole, reduced = (
        next(claim for claim in claims.find_claims("feder") if claim.text == f"FedER beats FedAvg{told}")
        for told in ("", claims.REDUCED)
    )
    assert claims.claim_line(whole) == "FedER beats FedAvg: not run"
    assert reduced.counts["missing"] == 0
    assert len(reduced.run) == len(reduced.pairs) > 6
    assert all(pair.departs for pair in reduced.pairs)


@pytest.mark.slow
def test_a_claim_of_several_tables_stands_there_once() -> None:
    texts = [claim.text for claim in claims.find_claims("gma")]
    assert len(texts) == len(set(texts))
    masking = claims.find_claims("gma")[0]
    assert {"table4_1", "table4_4"} <= set(masking.tables)


def test_a_pair_of_runs_that_fills_several_tables_counts_once() -> None:
    pairs = claims.find_claims("gma")[0].run
    assert len(pairs) > 20
    for pair, other in itertools.permutations(pairs, 2):
        assert not pair.is_in(other)
    one, more, rest = (
        replace(AHEAD, runs=(frozenset(a), frozenset(b))) for a, b in (("a", "x"), ("ab", "xy"), ("b", "x"))
    )
    assert one.is_in(more)
    assert not more.is_in(one)
    assert not rest.is_in(one)
    assert not MISSING.is_in(MISSING)
    assert not replace(one, quantity="best").is_in(replace(more, quantity="last"))  # the same two runs


@pytest.mark.exhaustive
@pytest.mark.parametrize("paper", paper_tables.papers())
def test_the_pages_hold_what_the_tables_say(paper: str) -> None:
    """They are generated: `python -m baselines.reproduce PAPER TABLE --collect-only` renews them."""
    assert between(paper_tables.PAPERS / paper / "README.md") == claims.page_lines(paper)


@pytest.mark.slow
def test_the_front_page_holds_what_the_tables_say() -> None:
    assert between(ROOT / "README.md") == claims.front_table(paper_tables.papers())


def between(path: Path) -> str:
    found = re.search(r"<!-- claims: generated -->\n(.*?)\n<!-- end -->", path.read_text(), re.S)
    assert found, path
    return found[1]


def test_only_what_stands_between_the_marks_is_renewed(tmp_path: Path) -> None:
    target = tmp_path / "page.md"
    target.write_text("before\n<!-- claims: generated -->\nold\n<!-- end -->\nafter\n")
    claims.replace_marked(target, "new \\1")
    assert target.read_text() == "before\n<!-- claims: generated -->\nnew \\1\n<!-- end -->\nafter\n"
    target.write_text("no marks\n")
    claims.replace_marked(target, "new")
    assert target.read_text() == "no marks\n"
