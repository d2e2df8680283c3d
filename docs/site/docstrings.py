"""How the reference shows docstrings: their sections as lists, what is in backquotes as code.

A class variable is shown with the comment behind it: what a subclass may set is part of the reference.
"""

import io
import re
import tokenize
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
        if (
            obj.docstring is None
            and is_class_variable(obj)
            and (text := comment_behind(obj.source))
        ):
            obj.docstring = griffe.Docstring(
                text, lineno=obj.lineno, parent=obj
            )
        if obj.docstring:
            obj.docstring.value = in_markdown(obj.docstring.value)


def is_class_variable(obj: griffe.Object) -> bool:
    """Say whether an object is an attribute of a class that no instance has of its own (``ClassVar``)."""
    return isinstance(obj.parent, griffe.Class) and obj.labels == {
        "class-attribute"
    }


def comment_behind(line: str) -> str:
    """Return the comment at the end of a statement of one line as a sentence; empty for none."""
    if "\n" in line.strip():
        return ""
    tokens = tokenize.generate_tokens(io.StringIO(line.strip()).readline)
    comment = "".join(
        token.string for token in tokens if token.type == tokenize.COMMENT
    )
    text = comment.removeprefix("#").strip()
    return f"{text[0].upper()}{text[1:]}." if text else ""


def in_markdown(text: str) -> str:
    """Return a docstring as Markdown."""
    return ROLE.sub(r"`\1`", SECTION.sub(_listed, text + "\n")).rstrip()


def _listed(match: re.Match[str]) -> str:
    entries = ENTRY.sub(lambda entry: f"* `{entry[1]}`: ", match[2])
    return f"**{match[1]}**\n\n{entries}\n"
