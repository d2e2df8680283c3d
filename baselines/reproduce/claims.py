"""The scoreboard: each claim of each paper, whether ours agrees, and on how many seeds.

Generated, never typed: a table on the front page, and a line for each claim at the top of a paper's page.
A claim that several tables of a paper test stands there once, with all of its pairs of cells; two runs
that are compared by the same number in several tables count once. A pair that was not run counts in each.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from filelock import FileLock
from rich import box
from rich.console import Console
from rich.table import Table

from baselines.engine.environment import write_atomically
from baselines.engine.run_folder import LOCK

from . import paper_tables, results
from .findings import VERDICTS, Comparison, comparisons
from .paper_tables import PaperTable
from .quoted import renew_page

REDUCED = " (in a reduced setting)"
NO_SEEDS = "deterministic"
MARKED = re.compile(r"(<!-- claims: generated -->\n).*?(<!-- end -->)", re.S)


@dataclass(frozen=True)
class Claim:
    """A paper's claim with every pair of cells that tests it.

    Parameters
    ----------
    paper, text : whose it is, and what it says
    tables : the tables and figures that test it
    pairs : the comparisons at the paper's own setting, or those that were run at reduced ones
    """

    paper: str
    text: str
    tables: tuple[str, ...]
    pairs: tuple[Comparison, ...]

    @property
    def counts(self) -> dict[str, int]:
        """How many pairs have each verdict."""
        counted = Counter(pair.verdict for pair in self.pairs)
        return {verdict: counted[verdict] for verdict in VERDICTS}

    @property
    def verdict(self) -> str:
        """All pairs in one word."""
        counts = self.counts
        if counts["agrees"] and counts["disagrees"]:
            return "mixed"
        return next((verdict for verdict, count in counts.items() if count), "missing")

    @property
    def run(self) -> list[Comparison]:
        """The pairs that were run."""
        return [pair for pair in self.pairs if pair.ours is not None]

    @property
    def ahead(self) -> int:
        """In how many of them the mean difference has the claim's sign, however small."""
        return sum(pair.ahead for pair in self.run)

    @property
    def seeds(self) -> str:
        """On how many seeds these stand: the fewest and the most; NO_SEEDS where they decide nothing."""
        counts = {pair.seeds for pair in self.run}
        if counts and not any(pair.seeded for pair in self.run):
            return NO_SEEDS
        return " to ".join(map(str, sorted({min(counts), max(counts)}))) if counts else ""


@dataclass
class _Tested:
    """What tests a claim, as it is found table by table."""

    tables: list[str] = field(default_factory=list)
    pairs: list[Comparison] = field(default_factory=list)

    def add(self, table: str, pair: Comparison) -> None:
        """Take in a pair, once however many tables it fills."""
        if table not in self.tables:
            self.tables.append(table)
        if not any(map(pair.is_in, self.pairs)):
            self.pairs = [*(one for one in self.pairs if not one.is_in(pair)), pair]


def find_claims(paper: str) -> list[Claim]:
    """Return a paper's claims in the order of its tables; what was run in a reduced setting apart."""
    found: dict[str, tuple[_Tested, _Tested]] = {}
    for name, table in paper_tables.tables(paper).items():
        rows = results.read(paper_tables.PAPERS / paper / "ours" / f"{name}.csv")
        settings = results.settings(table, rows, {})
        for finding in table.findings:
            whole, reduced = found.setdefault(finding["text"], (_Tested(), _Tested()))
            for first, *further in comparisons(table, finding, settings):
                whole.add(name, first)
                for pair in further:
                    reduced.add(name, pair)
    return [claim for text, tested in found.items() for claim in _apart(paper, text, *tested)]


def _apart(paper: str, text: str, whole: _Tested, reduced: _Tested) -> Iterator[Claim]:
    yield Claim(paper, text, tuple(whole.tables), tuple(whole.pairs))
    if reduced.pairs:
        yield Claim(paper, text + REDUCED, tuple(reduced.tables), tuple(reduced.pairs))


def claim_line(claim: Claim) -> str:
    """Return a claim with its verdict and what that stands on, as a sentence."""
    counts, run = claim.counts, len(claim.run)
    if not run:
        return f"{claim.text}: not run"
    shown = [f"{word} in {count}" for word, count in counts.items() if count and word != "missing"]
    seeds = NO_SEEDS if claim.seeds == NO_SEEDS else f"{claim.seeds} seed{'s' * (claim.seeds != '1')}"
    rest = f", {counts['missing']} not run" if counts["missing"] else ""
    verdict = f"{claim.verdict}: " if claim.verdict == "mixed" else ""
    told = f"{', '.join(shown)} of {run} pair{'s' * (run > 1)}, ahead in {claim.ahead}"
    return f"{claim.text}: {verdict}{told} ({seeds}{rest})"


def front_table(papers: Sequence[str]) -> str:
    """Return the table of the front page in Markdown."""
    lines = ["| claim | pairs of cells | ahead | seeds |", "| --- | --- | --- | --- |"]
    for paper in papers:
        page = f"baselines/papers/{paper}/README.md"
        lines.append(f"| **[{_title(paper)}]({page})** | | | |")
        for claim in find_claims(paper):
            ahead = f"{claim.ahead} of {len(claim.run)}" if claim.run else ""
            lines.append(f"| {claim.text} | {_counted(claim)} | {ahead} | {claim.seeds} |")
    return "\n".join(lines)


def _counted(claim: Claim) -> str:
    """Return how many pairs have each verdict; few columns, for a narrow screen."""
    named = {"not run" if word == "missing" else word: count for word, count in claim.counts.items()}
    return ", ".join(f"{word} {count}" for word, count in named.items() if count) or "not run"


def page_lines(paper: str) -> str:
    """Return the lines of a paper's page in Markdown, each with the tables that it comes from."""
    return "\n".join(f"* {claim_line(claim)}; {_links(claim)}." for claim in find_claims(paper))


def _links(claim: Claim) -> str:
    folder = paper_tables.PAPERS / claim.paper / "ours"
    known = (f"[{name}](ours/{name}.md)" for name in claim.tables if (folder / f"{name}.md").exists())
    return ", ".join(known) or "no table yet"


def _title(paper: str) -> str:
    """Return the first heading of a paper's page."""
    return (
        (paper_tables.PAPERS / paper / "README.md").read_text(encoding="utf-8").splitlines()[0].lstrip("# ")
    )


def write_pages(papers: Sequence[str]) -> None:
    """Renew the papers' pages, the numbers in their prose too, and the front page (a wheel has none)."""
    with FileLock(paper_tables.PAPERS / LOCK):  # another process may have run another table
        for paper in papers:
            own = paper_tables.PAPERS / paper / "README.md"
            replace_marked(own, page_lines(paper))
            renew_page(own, paper)
        front_page = paper_tables.PAPERS.parents[1] / "README.md"
        if front_page.exists():
            replace_marked(front_page, front_table(paper_tables.papers()))


def replace_marked(path: Path, content: str) -> None:
    """Put ``content`` between the file's two marks; without them, or without a file, nothing changes."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    fresh = MARKED.sub(lambda marks: f"{marks[1]}{content}\n{marks[2]}", text)
    if fresh != text:
        write_atomically(path, fresh)


# What can be reproduced: the papers' tables, how many of their cells have a number of ours, what holds.


def show_overview(papers: Sequence[str], out: Console) -> None:
    """Print a line for each table of these papers, and one for each of their claims.

    Raises
    ------
    UserError : for a paper that is not there
    """
    counts = {
        (paper, name): _counts(one) for paper in papers for name, one in paper_tables.tables(paper).items()
    }
    totals = [str(sum(column)) for column in zip(*counts.values(), strict=True)]
    view = Table(box=box.SIMPLE_HEAD, show_footer=True)
    view.add_column("paper", no_wrap=True)
    view.add_column("table", footer="all", no_wrap=True)  # to be copied
    for heading, total in zip(("cells", "run", "not the paper's setting"), totals, strict=True):
        view.add_column(heading, justify="right", footer=total)
    for names, counted in counts.items():
        view.add_row(*names, *map(str, counted))
    out.print(view)
    for paper in papers:
        out.print(f"  {paper}")
        for claim in find_claims(paper):
            out.print(f"    {claim_line(claim)}", soft_wrap=True)


def _counts(table: PaperTable) -> tuple[int, int, int]:
    """Return how many cells there are, have a number of ours, and have none in the paper's own setting."""
    rows = results.read(paper_tables.PAPERS / table.paper / "ours" / f"{table.name}.csv")
    ours = results.ours(results.settings(table, rows, {})).values()
    return len(table.cells()), len(ours), sum(bool(one.changes) for one in ours)
