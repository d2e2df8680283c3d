"""How the reference shows docstrings: their sections as lists, what is in backquotes as code."""

import re
from typing import Any

import griffe

SECTION = re.compile(
    r"^(Parameters|Raises|Returns)\n-+\n((?:.+\n?|\n(?= ))*)", re.MULTILINE
)
ENTRY = re.compile(r"^(\S[^\n]*?) : ", re.MULTILINE)
ROLE = re.compile(r":\w+:`~?(?:[\w.]*\.)?(\w+)`")


class Docstrings(griffe.Extension):
    """Rewrites every docstring as Markdown."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite one."""
        if obj.docstring:
            obj.docstring.value = in_markdown(obj.docstring.value)


def in_markdown(text: str) -> str:
    """Return a docstring as Markdown."""
    return ROLE.sub(r"`\1`", SECTION.sub(_listed, text + "\n")).rstrip()


def _listed(match: re.Match[str]) -> str:
    entries = ENTRY.sub(lambda entry: f"* `{entry[1]}`: ", match[2])
    return f"**{match[1]}**\n\n{entries}\n"
