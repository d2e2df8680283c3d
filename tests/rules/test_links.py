"""Every relative link of a Markdown file leads to a file and a heading, and every file it names exists."""

import re
from pathlib import Path

import pytest

from helpers.checkout import ROOT
from helpers.source import name_of

HIDDEN = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)  # what is code is no link
LINK = re.compile(r"(?:\]\(|\bsrc(?:set)?=\")([^)\"\s]+)[)\"]")
NAMED = re.compile(r"`((?:baselines|clients|conf|deploy|docs|examples|scripts|strategies|tests)/[\w./-]+)`")
NAMES_FILE = re.compile(r"\[`?([\w/]+\.\w+)`?\]\(([^)#\s]+)\)")  # whose text is a file's name
HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *(page for top in ("docs", "baselines", "examples") for page in sorted((ROOT / top).rglob("*.md"))),
]


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub gives a page's headings; of equal ones only the first counts."""
    headings = HEADING.findall(re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken(page: Path) -> list[str]:
    """Return the links of a page that lead nowhere."""
    targets = [link for link in LINK.findall(HIDDEN.sub("", page.read_text())) if "://" not in link]
    faults = []
    for target in targets:
        name, _, anchor = target.partition("#")
        page_of_link = (page.parent / name) if name else page
        if not page_of_link.exists() or (anchor and anchor not in anchors(page_of_link)):
            faults.append(target)
    return faults


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    assert broken(page) == []


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    (tmp_path / "there.md").write_text("# A `name`, and more\n```console\n# no heading\n```\n")
    page = tmp_path / "page.md"
    page.write_text(
        "[a](there.md) [b](there.md#a-name-and-more) [c](#own) `[d](code.md)` [e](https://flower.ai/x)\n"
        "# Own\n"
        '[f](gone.md) [g](there.md#no-heading) ![h](gone.png) [i](#none) <img src="gone.svg">\n```\n[j](code.md)\n```\n'
    )
    assert broken(page) == ["gone.md", "there.md#no-heading", "gone.png", "#none", "gone.svg"]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_files_that_are_named_are_there(page: Path) -> None:
    theirs = ROOT / "examples" / "mylab"  # docs/your-own.md names the files of a folder of one's own
    named = NAMED.findall(page.read_text())
    assert [name for name in named if not (ROOT / name).exists() and not (theirs / name).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_link_that_is_a_files_name_leads_to_that_file(page: Path) -> None:
    links = NAMES_FILE.findall(page.read_text())
    assert [pair for pair in links if not pair[1].endswith(pair[0])] == []
