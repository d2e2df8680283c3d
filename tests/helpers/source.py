"""The project's own source files, and what each of them imports."""

import ast
from collections.abc import Iterator
from pathlib import Path

from helpers.checkout import ROOT

PACKAGES = ("strategies", "clients", "baselines")
FILES = [path for folder in PACKAGES for path in sorted((ROOT / folder).rglob("*.py"))]


def name_of(path: Path) -> str:
    """Return a file's path within the project."""
    return path.relative_to(ROOT).as_posix()


def module_of(path: Path) -> str:
    """Return a file's dotted name; a package's is that of its folder."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): path for path in FILES}


def imported(path: Path) -> Iterator[str]:
    """Yield the absolute dotted names that a file imports; ``from a import b`` gives a.b."""
    package = path.relative_to(ROOT).parent.parts
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = [*package[: len(package) - node.level + 1]] if node.level else []
            yield from (".".join([*base, *filter(None, [node.module]), alias.name]) for alias in node.names)


def modules(path: Path) -> Iterator[str]:
    """Yield the modules of ours that a file imports, be it a module or a name in it."""
    for name in imported(path):
        if name in MODULES:
            yield name
        elif (module := name.rpartition(".")[0]) in MODULES:
            yield module
