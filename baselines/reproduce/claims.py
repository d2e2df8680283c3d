"""Judge each claim of each paper, with the number of seeds behind it.

Generated from this: the table and figure of the front page, every claim in ``docs/reproduce.md``, and the
claims at the top of a paper's page. A claim tested by several tables appears once, with all of its pairs of
cells. A pair of runs compared by the same number in several tables counts once; one not run counts in each.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from baselines.reports.tables import markdown_table

from . import paper_tables, results
from .findings import (
    NOT_RUN,
    VERDICTS,
    Comparison,
    comparisons,
    corrected_verdicts,
    decide,
    pooled_gains,
    student_interval,
)
from .paper_tables import PaperTable
from .results import Keys, Ours
from .text_claims import find_places

SMALLER_SETTING = " (smaller setting)"
NO_SEEDS = "deterministic"
Settings = Mapping[Keys, Sequence[Ours]]
FEWEST_SEEDS = 2  # per pair in the front page's mean: one has no interval


@dataclass(frozen=True)
class Claim:
    """A paper's claim with every pair of cells that tests it.

    Parameters
    ----------
    paper, text : the paper, and the claim's text
    tables : the tables and figures that test it
    pairs : the comparisons at the paper's own setting, or those that were run at smaller ones
    headline : whether the front page shows it
    general : whether it is about all pairs at once ("improves consistently"), so that they have one test
    """

    paper: str
    text: str
    tables: tuple[str, ...]
    pairs: tuple[Comparison, ...]
    headline: bool = False
    general: bool = False

    @property
    def counts(self) -> dict[str, int]:
        """How many pairs have each verdict, after Holm's correction over the pairs of the claim."""
        counted = Counter(corrected_verdicts(self.pairs))
        return {verdict: counted[verdict] for verdict in VERDICTS}

    def verdict_of(self, pair: Comparison) -> str:
        """Return the verdict on a table's pair, which another table may have with more seeds."""
        verdicts = zip(self.pairs, corrected_verdicts(self.pairs), strict=True)
        return next((verdict for one, verdict in verdicts if pair.is_in(one)), pair.verdict)

    @property
    def pooled(self) -> "PooledGains | None":
        """The one test over all pairs that were run; None where the claim is not ``general``."""
        gains = pooled_gains(self.run) if self.general else []
        interval = student_interval(gains)
        return PooledGains(float(np.mean(gains)), interval, len(gains)) if interval else None

    @property
    def verdict(self) -> str:
        """The verdict on the pairs that were run: one word if they agree, else the count of each."""
        counts = {verdict: count for verdict, count in self.counts.items() if count and verdict != NOT_RUN}
        if len(counts) < 2:
            return next(iter(counts), NOT_RUN)
        return ", ".join(f"{count} {verdict}" for verdict, count in counts.items())

    @property
    def run(self) -> list[Comparison]:
        """The pairs that were run."""
        return [pair for pair in self.pairs if pair.ours is not None]

    @property
    def ahead(self) -> int:
        """In how many of the pairs run the mean difference has the claim's sign, however small."""
        return sum(pair.ahead for pair in self.run)

    @property
    def seeds(self) -> str:
        """The fewest and the most seeds of the pairs run; NO_SEEDS if the seed decides nothing."""
        counts = {pair.seeds for pair in self.run}
        if counts and not any(pair.seeded for pair in self.run):
            return NO_SEEDS
        return " to ".join(map(str, sorted({min(counts), max(counts)}))) if counts else ""


@dataclass(frozen=True)
class PooledGains:
    """A claim's mean gain over all pairs, in percentage points, with its 95 % interval over pairs.

    ``pairs`` counts groups of pairs that share no run.
    """

    mean: float
    interval: tuple[float, float]
    pairs: int

    @property
    def verdict(self) -> str:
        """The verdict on the mean."""
        return decide(self.interval)


@dataclass
class _ClaimTests:
    """The tables and pairs that test a claim, collected table by table."""

    tables: list[str] = field(default_factory=list)
    pairs: list[Comparison] = field(default_factory=list)
    headline: bool = False
    general: bool = False

    def add(self, table: str, pair: Comparison) -> None:
        """Add a pair, once even if several tables have it."""
        if table not in self.tables:
            self.tables.append(table)
        if not any(map(pair.is_in, self.pairs)):
            self.pairs = [*(one for one in self.pairs if not one.is_in(pair)), pair]


def find_claims(paper: str) -> list[Claim]:
    """Return a paper's claims in the order of its tables; those at a smaller setting are separate."""
    folder = paper_tables.PAPERS / paper
    ours = [folder / "ours" / f"{name}.csv" for name in paper_tables.tables(paper)]
    files = [folder / "tables.yaml", *sorted(folder.glob("tables/*.csv")), *ours]
    return [*_claims_of(paper, tuple(path.read_bytes() if path.exists() else b"" for path in files))]


@lru_cache(maxsize=16)  # pages, front page and figures ask for the same claims
def _claims_of(paper: str, _: tuple[bytes, ...]) -> list[Claim]:
    """Return the claims in a paper's files; their content is the key of the cache."""
    return _judge(paper, ((table, _settings(table)) for table in paper_tables.tables(paper).values()))


def table_claims(table: PaperTable, settings: Settings) -> dict[str, Claim]:
    """Return, by text, the claims that a table tests, each with the pairs of all tables that test it."""
    texts = {finding["text"] for finding in table.findings}
    others = [
        other
        for name, other in paper_tables.tables(table.paper).items()
        if name != table.name and any(finding["text"] in texts for finding in other.findings)
    ]
    numbers = [(table, settings), *((other, _settings(other)) for other in others)]
    return {claim.text: claim for claim in _judge(table.paper, numbers)}


def _settings(table: PaperTable) -> dict[Keys, list[Ours]]:
    rows = results.read(paper_tables.PAPERS / table.paper / "ours" / f"{table.name}.csv")
    return results.settings(table, rows, {})


def _judge(paper: str, numbers: Iterable[tuple[PaperTable, Settings]]) -> list[Claim]:
    by_claim: dict[str, tuple[_ClaimTests, _ClaimTests]] = {}
    for table, settings in numbers:
        for finding in table.findings:
            whole, smaller = by_claim.setdefault(finding["text"], (_ClaimTests(), _ClaimTests()))
            whole.headline = smaller.headline = whole.headline or finding.get("headline", False)
            whole.general = smaller.general = whole.general or finding.get("general", False)
            for first, *further in comparisons(table, finding, settings):
                whole.add(table.name, first)
                for pair in further:
                    smaller.add(table.name, pair)
    return [claim for text, tested in by_claim.items() for claim in _split_by_setting(paper, text, *tested)]


def _split_by_setting(paper: str, text: str, whole: _ClaimTests, smaller: _ClaimTests) -> Iterator[Claim]:
    for suffix, tested in (("", whole), (SMALLER_SETTING, smaller)):
        if tested.pairs or not suffix:
            tables, pairs = tuple(tested.tables), tuple(tested.pairs)
            yield Claim(paper, text + suffix, tables, pairs, tested.headline, tested.general)


def claim_line(claim: Claim) -> str:
    """Return a claim, its verdict, and its pairs and seeds, as a line for the terminal."""
    run = len(claim.run)
    if not run:
        return f"{claim.text}: {NOT_RUN}"
    seeds = NO_SEEDS if claim.seeds == NO_SEEDS else f"{claim.seeds} seed{'s' * (claim.seeds != '1')}"
    pairs = f"{run} pair{'s' * (run > 1)}" + f" of {len(claim.pairs)}" * (run < len(claim.pairs))
    return f"{claim.text}: {claim.verdict} ({pairs}, ahead in {claim.ahead}, {seeds})"


# The headline of a paper: its main claim as one number beside ours.


@dataclass(frozen=True)
class Headline:
    """A paper's main claim as one mean over pairs of cells, at the paper's setting if any was run there.

    Parameters
    ----------
    claim : with all of its pairs
    pairs : number of pairs in the mean: those run with two seeds or more
    paper, ours : the mean gains, in percentage points; None if not all of these pairs have one
    interval : of our mean gain, over the seeds that all of these pairs share
    seeds : how many these are
    ratio : for losses instead of gains, the smallest factor between worse and better
    is_smaller : whether ours was run in a smaller setting than the paper's
    """

    claim: Claim
    pairs: int
    paper: float | None
    ours: float | None
    interval: tuple[float, float] | None
    seeds: int
    ratio: float | None
    is_smaller: bool

    @property
    def verdict(self) -> str:
        """The verdict on the mean; for a deterministic loss, the verdict on its pairs."""
        if self.ours is None:
            return self.claim.verdict
        return decide(self.interval)


def find_headline(paper: str) -> Headline | None:
    """Return a paper's headline; None where ``tables.yaml`` marks no claim as one."""
    claims = [claim for claim in find_claims(paper) if claim.headline]
    if not claims:
        return None
    claim = next((claim for claim in claims if claim.run), claims[0])
    pairs = [pair for pair in claim.run if pair.seeds >= FEWEST_SEEDS and pair.points]
    seeds = set.intersection(*(set(pair.by_seed) for pair in pairs)) if pairs else set()
    gains = [
        float(np.mean([_points(pair, pair.by_seed[seed]) for pair in pairs])) for seed in sorted(seeds)
    ]
    printed = [_points(pair, pair.paper) for pair in pairs if pair.paper is not None]
    ratios = [pair.ratio for pair in claim.run if pair.ratio is not None]
    return Headline(
        claim=claim,
        pairs=len(pairs) or len(claim.run),
        paper=float(np.mean(printed)) if printed and len(printed) == len(pairs) else None,
        ours=float(np.mean(gains)) if gains else None,
        interval=student_interval(gains),
        seeds=len(gains),
        ratio=min(ratios) if ratios else None,
        is_smaller=claim.text.endswith(SMALLER_SETTING),
    )


def _points(pair: Comparison, value: float) -> float:
    assert pair.points is not None
    return value * pair.points


FRONT_PAGE_CLAIMS = [
    "paper: its main claim",
    "verdict",
    "its gain, same pairs",
    "our gain (95 % interval)",
    "pairs of the claim",
]


def front_table(papers: Sequence[str]) -> str:
    """Return the table of the front page in Markdown: a line for each paper, decided ones first."""
    headlines = [headline for paper in papers if (headline := find_headline(paper)) is not None]
    headlines.sort(key=lambda one: min(i for i, verdict in enumerate(VERDICTS) if verdict in one.verdict))
    lines = [
        [
            _linked_claim(headline),
            f"**{headline.verdict}**",
            _paper_number(headline),
            _our_number(headline),
            _pairs(headline.claim),
        ]
        for headline in headlines
    ]
    return markdown_table(FRONT_PAGE_CLAIMS, lines).rstrip()


def _linked_claim(headline: Headline) -> str:
    claim = headline.claim
    text = claim.text.removesuffix(SMALLER_SETTING)
    return f"[{paper_title(claim.paper)}](baselines/papers/{claim.paper}/README.md): {text}"


def _paper_number(headline: Headline) -> str:
    return "prints curves" if headline.paper is None else f"{headline.paper:+.2f}"


def _our_number(headline: Headline) -> str:
    if headline.ours is None:
        return (
            f"loss {float(f'{headline.ratio:.2g}'):,.0f} times lower or more; {NO_SEEDS}"
            if headline.ratio
            else ""
        )
    low, high = headline.interval or (float("nan"), float("nan"))
    spread = f" ({low:+.2f} to {high:+.2f})" if headline.interval else ""
    return f"{headline.ours:+.2f}{spread}; {headline.seeds} seeds" + " †" * headline.is_smaller


def _pairs(claim: Claim) -> str:
    return ", ".join(f"{count} {verdict}" for verdict, count in claim.counts.items() if count)


def claims_table(papers: Sequence[str]) -> str:
    """Return every claim of every paper in Markdown."""
    lines = []
    for paper in papers:
        page = f"../baselines/papers/{paper}/README.md"
        lines.append([f"**[{paper_title(paper)}]({page})**", *[""] * (len(COLUMNS) - 1)])
        lines += [_claim_row(claim) for claim in find_claims(paper)]
    return markdown_table(COLUMNS, lines).rstrip()


def page_claims(paper: str) -> str:
    """Return a paper's claims in Markdown, with the places in the text and the tables that test them."""
    rows = [
        [*_claim_row(claim), find_places(paper, claim.text.removesuffix(SMALLER_SETTING)), _links(claim)]
        for claim in find_claims(paper)
    ]
    heads = [*COLUMNS, "in the text", "tables"]
    filled = [place for place in range(len(heads)) if any(row[place] for row in rows)]  # not empty
    return markdown_table([heads[i] for i in filled], [[row[i] for i in filled] for row in rows]).rstrip()


COLUMNS = ["claim", "verdict", "pairs run", "ahead", "seeds", "over all pairs (points)"]


def _claim_row(claim: Claim) -> list[str]:
    run = len(claim.run)
    return [
        claim.text,
        claim.verdict,
        f"{run} of {len(claim.pairs)}",
        f"{claim.ahead}" * bool(run),
        claim.seeds,
        _format_pooled(claim),
    ]


def _format_pooled(claim: Claim) -> str:
    if claim.pooled is None:
        return ""
    low, high = claim.pooled.interval
    return f"{claim.pooled.verdict}: {claim.pooled.mean:+.2f} ({low:+.2f} to {high:+.2f})"


def _links(claim: Claim) -> str:
    folder = paper_tables.PAPERS / claim.paper / "ours"
    known = (f"[{name}](ours/{name}.md)" for name in claim.tables if (folder / f"{name}.md").exists())
    return ", ".join(known)


def paper_title(paper: str) -> str:
    """Return the first heading of a paper's page."""
    page = paper_tables.PAPERS / paper / "README.md"
    return page.read_text(encoding="utf-8").splitlines()[0].lstrip("# ")


# Overview: the papers' tables, how many of their cells have been run, and which claims hold.


def show_overview(papers: Sequence[str], out: Console) -> None:
    """Print a line for each table of these papers, and one for each of their claims.

    Raises
    ------
    UserError : if a paper does not exist
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
    """Return the number of cells, of those run, and of those run only in another setting than the paper's."""
    ours = results.ours(_settings(table)).values()
    return len(table.cells()), len(ours), sum(bool(one.changes) for one in ours)
