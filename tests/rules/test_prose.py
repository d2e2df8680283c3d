"""The words of the pages: short sentences, few numbers in them, no tics, code that fits its column."""

import re
from pathlib import Path

import pytest

from helpers.checkout import ROOT
from helpers.prose import count_numbers, count_words, sentences, visible_words
from helpers.source import name_of

GENERATED = {"benchmarks.md", "benchmarks-ray.md", "benchmarks-step.md", "settings.md", "combinations.md"}
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(path for path in (ROOT / "docs").rglob("*.md") if path.name not in GENERATED),
    *sorted((ROOT / "baselines" / "papers").glob("*/README.md")),
    *sorted((ROOT / "examples").glob("*/README.md")),
]
MOST_WORDS, MOST_NUMBERS, MOST_COLUMNS = 35, 3, 80
MOST_ON_USER_PAGES = 12_000
TICS = (
    "so many", "as it is", "to the bit", "of ours", "of one's own", "is told", "in the place of",
    "without a word", "bears with", "alike", "stands",
)  # fmt: skip
MARKED = re.compile(r"<!-- (\w+): generated -->.*?<!-- end -->", re.DOTALL)
BLOCK = re.compile(r"^ *```\w*\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)


def prose(page: Path) -> str:
    """Return what people have written of a page."""
    return MARKED.sub("", page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_sentences_are_short(page: Path) -> None:
    assert [one for one, _ in sentences(prose(page)) if count_words(one) >= MOST_WORDS] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_numbers_stand_in_tables(page: Path) -> None:
    written = [one for one, is_cell in sentences(prose(page)) if not is_cell]
    assert [one for one in written if count_numbers(one) > MOST_NUMBERS] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_tics(page: Path) -> None:
    text = " ".join(one.lower() for one, _ in sentences(prose(page)))
    assert [tic for tic in TICS if re.search(rf"\b{tic}\b", text)] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_code_fits_its_column(page: Path) -> None:
    lines = [
        line for block in BLOCK.findall(page.read_text(encoding="utf-8")) for line in block.splitlines()
    ]
    assert [line for line in lines if len(line) > MOST_COLUMNS] == []


def test_the_pages_for_users_are_short() -> None:
    pages = (ROOT / "docs").glob("*.md")
    assert sum(len(visible_words(prose(page))) for page in pages) <= MOST_ON_USER_PAGES


def test_what_is_counted() -> None:
    page = (
        "# A `name`\n\nOne two, `a b c` three.\nFour [five](six.md#seven) 1, 2 and ResNet-18. \n\n"
        "* item 3.5\n  goes on\n\n| a | b c |\n| --- | --- |\n| 4 5 6 7. Eight | `x` |\n\n"
        "```console\n$ not counted 1 2 3 4\n```\n"
    )
    actual = list(sentences(page))
    assert [one for one, is_cell in actual if not is_cell] == [
        "A CODE",
        "One two, CODE three.",
        "Four five 1, 2 and ResNet-18.",
        "item 3.5 goes on",
    ]
    assert [one for one, is_cell in actual if is_cell] == [
        "a", "b c", "---", "---", "4 5 6 7.", "Eight", "CODE",
    ]  # fmt: skip
    assert count_words("a - b, c") == 3
    assert count_numbers("1, 2 and ResNet-18, 3.5, w_1, tables 4.1 to 4.3 and eq. 7") == 3
    assert visible_words("[a](b) | `c d` **e**") == ["a", "c", "d", "e"]
