"""The prose of a Markdown page: its visible words, and its sentences."""

import re
from collections.abc import Iterator

MARKS = re.compile(
    r"<!--.*?-->|</?(?:picture|source|img)\b[^>]*>|\]\([^)]*\)|[|\[\]`*#]|---", re.DOTALL
)  # what a reader does not see
FENCED = re.compile(
    r"^ *```.*?^ *```$|<!--.*?-->|<picture>.*?</picture>|^    \S.*$", re.MULTILINE | re.DOTALL
)
LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
CODE = re.compile(r"`[^`]+`")
END = re.compile(r"(?<=[.!?])[*)\"]*\s+(?=[\"(*]*[A-Z`])")
ITEM = re.compile(r"^ *(?:[*-]|\d+\.) +")
NAMED = r"tables?|figures?|sections?|chapters?|differences?|algorithms?|lines?|eqs?\."
REFERENCE = re.compile(  # the number of a table is a name
    rf"\b(?:{NAMED}) \d[\d.]*(?:(?:,| and| to) \d[\d.]*)*", re.IGNORECASE
)
NUMBER = re.compile(r"(?<![\w.\-])[-+]?\d[\d.,]*")


def visible_words(text: str) -> list[str]:
    """Return the words that a reader sees: code too, but no address and no mark of Markdown."""
    return MARKS.sub(" ", text).split()


def sentences(text: str) -> Iterator[tuple[str, bool]]:
    """Yield (sentence, whether it is in a table); code counts as one word."""
    text = CODE.sub("CODE", LINK.sub(r"\1", FENCED.sub("\n\n", text)))
    for block, is_cell in blocks(text.splitlines()):
        for sentence in END.split(block):
            if sentence.strip():
                yield sentence.strip(), is_cell


def blocks(lines: list[str]) -> Iterator[tuple[str, bool]]:
    """Yield (text, whether it is a table's cell) of each paragraph, list item, heading and cell."""
    block: list[str] = []
    for line in [*lines, ""]:
        is_row, is_heading = line.lstrip().startswith("|"), line.startswith("#")
        if not line.strip() or is_row or is_heading or ITEM.match(line):
            if block:
                yield " ".join(block), False
            block = []
        if is_row:
            yield from ((cell.strip(), True) for cell in line.strip().strip("|").split("|"))
        elif is_heading:
            yield line.lstrip("# "), False
        elif line.strip():
            block.append(ITEM.sub("", line).strip())


def count_words(sentence: str) -> int:
    """Return how many words a sentence has; signs alone are none."""
    return sum(any(letter.isalnum() for letter in word) for word in sentence.split())


def count_numbers(sentence: str) -> int:
    """Return how many numbers a sentence has; those in names (ResNet-18, table 4.4) are none."""
    return len(NUMBER.findall(REFERENCE.sub("", sentence)))
