"""How the reference shows docstrings: their sections as lists, what is in backquotes as code.

The comment behind a class variable is its docstring.
"""

import re
from typing import Any

import griffe

SECTION = re.compile(
    r"^(Parameters|Raises|Returns)\n-+\n((?:.+\n?|\n(?= ))*)", re.MULTILINE
)
ENTRY = re.compile(r"^(\S[^\n]*?) : ", re.MULTILINE)
COMMENT = re.compile(r":.+ = [^#]*  # (.+)$")  # of an annotated variable
SYMBOL = re.compile(r"[b-zA-Z]\b|\w_")  # keeps its case
ROLE = re.compile(r":\w+:`~?(?:[\w.]*\.)?(\w+)`")


class Docstrings(griffe.Extension):
    """Rewrites every docstring as Markdown."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite one."""
        if not obj.docstring and (comment := comment_of(obj)):
            obj.docstring = griffe.Docstring(comment, parent=obj)
        if obj.docstring:
            obj.docstring.value = in_markdown(obj.docstring.value)


def comment_of(obj: griffe.Object) -> str:
    """Return the comment behind a class variable as a sentence; empty for none, and for a field."""
    owner = obj.parent
    if owner is None or not owner.is_class or not obj.is_attribute:
        return ""
    comment = COMMENT.search(obj.source)
    is_field = "dataclass" in owner.labels and "ClassVar" not in obj.source
    if comment is None or is_field:
        return ""
    text = f"{comment[1].rstrip('.')}."
    return text if SYMBOL.match(text) else text[0].upper() + text[1:]


def in_markdown(text: str) -> str:
    """Return a docstring as Markdown."""
    return ROLE.sub(r"`\1`", SECTION.sub(_listed, text + "\n")).rstrip()


def _listed(match: re.Match[str]) -> str:
    entries = ENTRY.sub(lambda entry: f"* `{entry[1]}`: ", match[2])
    return f"**{match[1]}**\n\n{entries}\n"
