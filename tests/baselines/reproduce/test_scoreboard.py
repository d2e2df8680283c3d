"""Each claim with its verdict: generated from the tables, on the front page and on each paper's page."""

import itertools
import re
from dataclasses import replace
from pathlib import Path

import pytest

from baselines.experiment.overrides import ROOT
from baselines.reproduce import claims, overview, paper_tables
from baselines.reproduce.claims import Claim
from baselines.reproduce.findings import Comparison
from baselines.reproduce.page import replace_marked
from helpers.prose import visible_words


def pair(ours: float | None, spread: float | None, *, seeds: int = 2, departs: bool = False) -> Comparison:
    interval = None if ours is None or spread is None else (ours - spread, ours + spread)
    return Comparison({}, None, ours, interval, departs, seeds)


AHEAD, BEHIND = pair(2.0, 1.0), pair(-2.0, 1.0, seeds=3)
WITHIN, SINGLE, MISSING = pair(0.5, 1.0), pair(9.0, None, seeds=1), pair(None, None, seeds=0)
SMALLER = pair(2.0, 1.0, departs=True)
UNSEEDED = replace(pair(2.0, 0.0, seeds=1), seeded=False)


@pytest.mark.parametrize(
    ("pairs", "line"),
    [
        ([AHEAD, AHEAD], "x: confirmed (2 pairs, ahead in 2, 2 seeds)"),
        ([AHEAD, BEHIND], "x: 1 confirmed, 1 contradicted (2 pairs, ahead in 1, 2 to 3 seeds)"),
        ([WITHIN, SINGLE], "x: undecided (2 pairs, ahead in 2, 1 to 2 seeds)"),
        ([SINGLE, MISSING], "x: undecided (1 pair of 2, ahead in 1, 1 seed)"),
        ([BEHIND, WITHIN], "x: 1 contradicted, 1 undecided (2 pairs, ahead in 1, 2 to 3 seeds)"),
        ([UNSEEDED, MISSING], "x: confirmed (1 pair of 2, ahead in 1, deterministic)"),
        ([MISSING], "x: not run"),
        ([], "x: not run"),
    ],
)
def test_a_claim_in_one_line(pairs: list[Comparison], line: str) -> None:
    assert claims.claim_line(Claim("gma", "x", ("table4_1",), tuple(pairs))) == line


def test_a_smaller_setting_counts_apart() -> None:
    """FedER's own table: its pairs are missing, and a claim of its own has what was run."""
    whole, reduced = (
        next(claim for claim in claims.find_claims("feder") if claim.text == f"FedER beats FedAvg{setting}")
        for setting in ("", claims.SMALLER_SETTING)
    )
    assert claims.claim_line(whole) == "FedER beats FedAvg: not run"
    assert reduced.counts["not run"] == 0
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
    assert between(paper_tables.PAPERS / paper / "README.md") == claims.page_claims(paper)


@pytest.mark.slow
def test_the_front_page_holds_what_the_tables_say() -> None:
    """`python -m baselines.reproduce --overview` renews it, its figures and the list of claims."""
    assert between(ROOT / "README.md") == claims.front_table(paper_tables.papers())
    assert between(ROOT / "docs" / "reproduce.md") == claims.claims_table(paper_tables.papers())
    data = overview.overview_data(paper_tables.papers())
    for name in overview.DRAWINGS:
        assert overview.read_data(ROOT / "docs" / name) == data, name


def test_a_headline_is_the_mean_gain_over_pairs_with_the_seeds_that_all_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Gains (1 + 3) / 2 and (2 + 6) / 2 points: mean 3, standard error 1, Student's t 12.7062."""
    few, many, single = (
        replace(AHEAD, points=100.0, paper=0.04, seeds=len(values), by_seed=dict(enumerate(values)))
        for values in ((0.01, 0.02), (0.03, 0.06, 0.9), (0.5,))
    )
    pairs = (few, many, single, MISSING)
    claim = Claim("gma", "x", (), pairs, headline=True)
    monkeypatch.setattr(claims, "find_claims", lambda paper: [replace(claim, headline=False), claim])
    actual = claims.find_headline("gma")
    assert actual is not None
    assert (actual.pairs, actual.seeds, actual.is_smaller) == (2, 2, False)
    assert (actual.ours, actual.paper) == (pytest.approx(3.0), pytest.approx(4.0))
    assert actual.interval == pytest.approx((3 - 12.7062, 3 + 12.7062), abs=1e-4)
    assert actual.verdict == "undecided"
    row = claims.front_table(["gma"]).splitlines()[2]
    assert "| **undecided** | +4.00 | +3.00 (-9.71 to +15.71); 2 seeds | " in row
    alone = replace(claim, pairs=(replace(few, paper=None),), text="x" + claims.SMALLER_SETTING)
    monkeypatch.setattr(claims, "find_claims", lambda paper: [alone])
    assert "| prints curves | +1.50 (-4.85 to +7.85); 2 seeds † |" in claims.front_table(["gma"])


def test_a_headline_without_a_mean_stands_where_its_first_verdict_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Pairs without points have no mean: the verdict is theirs, "1 confirmed, 1 undecided"."""
    papers = {"fedexp": (WITHIN,), "afl": (AHEAD, WITHIN), "gma": (BEHIND,)}
    monkeypatch.setattr(
        claims, "find_claims", lambda paper: [Claim(paper, paper, (), papers[paper], headline=True)]
    )
    monkeypatch.setattr(claims, "paper_title", str)
    rows = claims.front_table(list(papers)).splitlines()[2:]
    assert [row.partition("**")[2].partition("**")[0] for row in rows] == [
        "1 confirmed, 1 undecided",
        "contradicted",
        "undecided",
    ]


def test_every_paper_has_one_headline() -> None:
    for paper in paper_tables.papers():
        headlines = [one for one in claims.find_claims(paper) if one.headline]
        assert len({one.text.removesuffix(claims.SMALLER_SETTING) for one in headlines}) == 1, paper


def test_the_front_page_is_short_and_starts_with_a_command_a_table_and_a_figure() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(visible_words(text)) <= 700
    first = text[: text.index("## The idea")]
    parts = (
        "```console",
        "\n$ git clone ",
        "\n| ---",
        'srcset="docs/overview-narrow.png"',
        'src="docs/overview.png"',
    )
    assert [first.count(part) for part in parts] == [1] * len(parts)
    assert first.count("\n$ ") == 1
    assert [first.index(part) for part in parts] == sorted(first.index(part) for part in parts)


def between(path: Path) -> str:
    match = re.search(r"<!-- claims: generated -->\n(.*?)\n<!-- end -->", path.read_text(), re.S)
    assert match, path
    return match[1]


def test_only_what_stands_between_the_marks_is_renewed(tmp_path: Path) -> None:
    target = tmp_path / "page.md"
    target.write_text("before\n<!-- claims: generated -->\nold\n<!-- end -->\nafter\n")
    replace_marked(target, "new \\1")
    assert target.read_text() == "before\n<!-- claims: generated -->\nnew \\1\n<!-- end -->\nafter\n"
    target.write_text("no marks\n")
    replace_marked(target, "new")
    assert target.read_text() == "no marks\n"
