"""No participle and no pronoun is a name: a reader asks what was found, who was told, which one this is."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
REFUSED = {"asked", "found", "told", "said", "shown", "there", "this"}
FILES = sorted(
    path
    for folder in ("strategies", "clients", "baselines", "docs", "examples", "tests")
    for path in (ROOT / folder).rglob("*.py")
)


def names(node: ast.AST) -> Iterator[str]:
    """Yield the names that a node gives to something."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        yield node.attr
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.FunctionDef | ast.ClassDef | ast.ExceptHandler):
        yield node.name or ""
    elif isinstance(node, ast.alias):
        yield node.asname or node.name


def refused(text: str) -> list[str]:
    given = (name.strip("_") for node in ast.walk(ast.parse(text)) for name in names(node))
    return [name for name in given if name in REFUSED]


def test_no_participle_and_no_pronoun_is_a_name() -> None:
    assert {str(path.relative_to(ROOT)): bad for path in FILES if (bad := refused(path.read_text()))} == {}


@pytest.mark.parametrize(
    "text",
    [
        "found = 1",
        "self.this = 1",
        "def told(): ...",
        "def f(*, shown): ...",
        "from replies import said",
        "[there for there in ()]",
        "if (found := f()): ...",
        "def _found(): ...",
    ],
)
def test_each_way_to_name_something_is_seen(text: str) -> None:
    assert len(refused(text)) == 1
