"""Arrows go one way: baselines -> clients -> what is shared in strategies, and baselines -> strategies."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
OURS = {"strategies", "clients", "baselines", "conf", "tests"}
SHARED = ("protocol", "seeding", "checks", "arrays", "rank")  # no strategy among them
MAY = {  # folder: which of our modules it may import
    "strategies": {"strategies"},
    "clients": {"clients", *(f"strategies.{name}" for name in SHARED)},
    "baselines": {"baselines", "clients", "strategies"},
}
NEVER = {"strategies": {"hydra", "omegaconf"}, "clients": {"hydra", "omegaconf"}, "baselines": set[str]()}
FILES = [path for folder in MAY for path in sorted((ROOT / folder).rglob("*.py"))]


def imported(path: Path) -> Iterator[str]:
    """Yield the absolute dotted names that a file imports; ``from a import b`` gives a.b."""
    package = path.relative_to(ROOT).parent.parts
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = [*package[: len(package) - node.level + 1]] if node.level else []
            yield from (".".join([*base, *filter(None, [node.module]), alias.name]) for alias in node.names)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_only_what_it_may(path: Path) -> None:
    folder = path.relative_to(ROOT).parts[0]
    names = list(imported(path))
    ours = [name for name in names if name.split(".")[0] in OURS]
    allowed = [name for name in ours if any(f"{name}.".startswith(f"{may}.") for may in MAY[folder])]
    assert [name for name in ours if name not in allowed] == []
    assert [name for name in names if name.split(".")[0] in NEVER[folder]] == []


def test_all_files_are_read() -> None:
    assert {path.relative_to(ROOT).parts[0] for path in FILES} == set(MAY)
    assert "strategies.layout.Layout" in imported(ROOT / "strategies" / "updates.py")
