"""Every claim of a paper's text is listed, with what answers it; every finding is a claim of the text."""

from pathlib import Path

import pytest

from baselines.reproduce import paper_tables, text_claims
from helpers.checkout import ROOT

KINDS = ("finding", "table", "test", "takes")


@pytest.mark.parametrize("paper", paper_tables.papers())
def test_each_claim_has_one_answer_that_exists(paper: str) -> None:
    tables = paper_tables.tables(paper)
    findings = {finding["text"] for table in tables.values() for finding in table.findings}
    listed = text_claims.text_claims(paper)
    assert listed
    for one in listed:
        assert one.where
        assert sum(bool(getattr(one, kind)) for kind in KINDS) == 1, one.claim
        assert set(one.finding) <= findings, one.claim
        assert not one.table or (paper_tables.PAPERS / paper / "ours" / f"{one.table}.md").exists()
        assert not one.test or (ROOT / one.test).exists()
    assert findings == {text for one in listed for text in one.finding}, "a finding that no text claims"


def test_a_finding_says_where_the_text_makes_it_and_the_rest_what_it_would_take(papers: Path) -> None:
    (papers / "tiny" / "claims.yaml").write_text(
        "- { where: section 1, claim: a, finding: FedExP beats FedAvg }\n"
        "- { where: section 2, claim: b, takes: a week }\n"
        "- { where: section 3, claim: c, finding: [x, FedExP beats FedAvg] }\n"
        "- { where: section 4, claim: d, table: table1 }\n"
    )
    text_claims.text_claims.cache_clear()
    assert text_claims.find_places("tiny", "FedExP beats FedAvg") == "§ 1, 3"
    assert text_claims.page_others("tiny").splitlines()[2:] == [
        "| b | section 2 | nothing yet; a week |",
        "| d | section 4 | [table1](ours/table1.md) |",
    ]
    text_claims.text_claims.cache_clear()


@pytest.mark.parametrize(
    ("wheres", "line"),
    [
        (
            ["section 4.1, section 4.2; tables 1 and 2", "abstract", "figures 7.1 to 7.3; section 4.1"],
            "§ 4.1, 4.2; tables 1, 2; abstract; figures 7.1 to 7.3",
        ),
        (["section V.A, VI.B; abstract", "monotony"], "§ V.A, VI.B; abstract, monotony"),
        (["figure 2", "3.1"], "figure 2; 3.1"),
        (["appendix A", "appendices B and C"], "appendices A, B, C"),
    ],
)
def test_places_of_a_kind_stand_together(
    monkeypatch: pytest.MonkeyPatch, wheres: list[str], line: str
) -> None:
    claims = tuple(text_claims.TextClaim(where, "", ("f",)) for where in wheres)
    monkeypatch.setattr(text_claims, "text_claims", lambda paper: claims)
    assert text_claims.find_places("tiny", "f") == line
