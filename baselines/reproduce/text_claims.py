"""The claims in the papers' texts, and what tests each.

``papers/<paper>/claims.yaml`` lists, in the order of the text:

where : the sections, figures and tables that state it
claim : the statement, in one line
finding : the finding of ``tables.yaml`` that tests it, or a list of them; or else one of
table : the table whose numbers answer it, if nothing is compared
test : the test that shows it, if it holds by construction
takes : what a test would take, if nothing here tests it
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from omegaconf import OmegaConf

from baselines.reports.tables import markdown_table

from . import paper_tables

PARTS = re.compile(r"[;,] *| and ")
NUMBER = re.compile(r"\d|([IVXLC]+|[A-Za-z])\b")  # the beginning of a number: "4.2 a", "V.A", "B"
KINDS = {
    "section": "sections",
    "chapter": "chapters",
    "appendix": "appendices",
    "figure": "figures",
    "table": "tables",
    "theorem": "theorems",
    "definition": "definitions",
    "proposition": "propositions",
}


@dataclass(frozen=True)
class TextClaim:
    """A claim of a paper's text; see the module's docstring for the fields."""

    where: str
    claim: str
    finding: tuple[str, ...] = ()
    table: str = ""
    test: str = ""
    takes: str = ""

    @property
    def answer(self) -> str:
        """What answers a claim without a finding, or what a test would take."""
        if self.table:
            return f"[{self.table}](ours/{self.table}.md)"
        return f"[a test](../../../{self.test})" if self.test else f"nothing yet; {self.takes}"


@cache
def text_claims(paper: str) -> tuple[TextClaim, ...]:
    """Return the claims of a paper's text; empty if they are not listed."""
    path = paper_tables.PAPERS / paper / "claims.yaml"
    return tuple(_read(path)) if path.exists() else ()


def _read(path: Path) -> Iterator[TextClaim]:
    entries = OmegaConf.to_container(OmegaConf.load(path))
    assert isinstance(entries, list)
    for entry in entries:
        assert isinstance(entry, dict)
        yield TextClaim(**entry | {"finding": tuple(paper_tables.texts(entry.get("finding", [])))})


def find_places(paper: str, finding: str) -> str:
    """Return where the text states a finding's claim: "§ 4.1, 4.3; tables 4.1, 4.4; abstract"."""
    kinds = {word: kind for kind, plural in KINDS.items() for word in (kind, plural)}
    numbers: dict[str, list[str]] = {}
    for where in dict.fromkeys(one.where for one in text_claims(paper) if finding in one.finding):
        kind = ""
        for place in PARTS.split(where):
            word, _, number = place.partition(" ")
            if word in kinds:
                kind = kinds[word]
            else:
                kind, number = kind if NUMBER.match(place) else "", place
            if number not in numbers.setdefault(kind, []):
                numbers[kind].append(number)
    return "; ".join(
        f"{_plural(kind, listed)} {', '.join(listed)}".strip() for kind, listed in numbers.items()
    )


def _plural(kind: str, listed: list[str]) -> str:
    if kind in ("", "section"):
        return "§" * bool(kind)
    return KINDS[kind] if len(listed) > 1 or " to " in listed[0] else kind


def page_others(paper: str) -> str:
    """Return, in Markdown, the claims of a paper's text without a finding, and what answers each."""
    rows = [[one.claim, one.where, one.answer] for one in text_claims(paper) if not one.finding]
    if not rows:
        return "Every claim of the text has a finding."
    return markdown_table(["claim", "in the text", "answer"], rows).rstrip()
