"""The numbers in a page's prose: computed from the tables, never typed.

    masking is <!--= section4_5 iid gma - average -->0.07 points above<!--/--> averaging

The two comments do not show; what stands between them is generated from the expression in the first:

    [paper] [FORM] TABLE [VALUE[,VALUE] ...] [- VALUE ... | - paper | / VALUE ...] [:FORMAT]

TABLE VALUE ... : the cells that have these values, see ``quoted.py``; accuracies are always in per cent
- VALUE ... : the difference from the cell that has these values instead, over the seeds that both have:
    "1.20 points above", "0.30 points below" or "level with"; ``- paper``: from the printed number
/ VALUE ... : how many times as much as that cell
FORM : what is said of these numbers, see ``number_words.py``; without one it is the mean of a single number
paper : the printed numbers in place of ours
FORMAT : Python's, such as ``:.1f``; without one as in the tables
"""

import re
from functools import cache
from pathlib import Path

from baselines.engine import whole_file
from baselines.errors import UserError

from . import number_words, quoted
from .plan import table_of

MARKED = re.compile(r"<!--= (.+?) -->(.*?)<!--/-->", re.S)
AT_A_LINES_START = re.compile(r"^\s*(?:[*+-]|\d+\.)?\s*<!--=", re.M)


def said(paper: str, expression: str, read: quoted.Read = quoted.read_cells) -> str:
    """Return what an expression stands for; ``read`` reads the tables.

    Raises
    ------
    UserError : where it names no cell, or more than one, or cannot be read
    """
    words = expression.split()
    form = words.pop()[1:] if words[-1:] and words[-1].startswith(":") else ""
    printed = words[:1] == ["paper"]
    words = words[printed:]
    say = number_words.form_named(words[0]) if words else None
    words = words[say is not None :]
    if not words:
        raise UserError("it names no table")
    table = table_of(paper, words[0])
    found, operator = quoted.numbers_of(table, words[1:], read, printed=printed)
    unit = number_words.unit_of(table, operator, form)
    return (say or number_words.mean)(found, unit)


def renewed(text: str, paper: str) -> str:
    """Return a page's text with every number as the tables have it.

    Raises
    ------
    UserError : for an expression that cannot be computed; it begins with the expression
    """
    if text.count("<!--=") != len(MARKED.findall(text)) or text.count("<!--/-->") != text.count("<!--="):
        raise UserError("a number has only one of its two comments, <!--= EXPRESSION --> and <!--/-->")
    if AT_A_LINES_START.search(text):
        raise UserError("a number begins a line, where Markdown takes its comment for HTML: move it on")

    read = cache(quoted.read_cells)  # each table once

    def fresh(match: re.Match[str]) -> str:
        try:
            return f"<!--= {match[1]} -->{said(paper, match[1], read)}<!--/-->"
        except (UserError, ValueError, ZeroDivisionError) as error:  # what Python's format says, too
            raise UserError(f"{match[1]}: {error}") from error

    return MARKED.sub(fresh, text)


def renew(path: Path, paper: str) -> None:
    """Renew the numbers in a paper's page; without such a file nothing happens.

    Raises
    ------
    UserError : as ``renewed``, with the page's name; the page stays as it is
    """
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    try:
        fresh = renewed(text, paper)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    if fresh != text:
        whole_file.write(path, fresh)
