"""Writes docs/reference/settings.md, every setting of conf/: ``python docs/site/settings.py``.

A meaning is the comment beside the value, else what the class that takes it says in its docstring. A value
that refers to another setting, and what a class takes from the rest of a run, is no setting of its own.
"""

import json
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "settings.md"
CONF = ROOT / "conf"
GROUPS = (  # in the order of a reader's choices
    "strategy", "weighting", "aggregation", "server_optimizer", "mask", "step_size", "grouping", "staleness",
    "clock", "privacy", "compression", "client", "client_optimizer", "schedule", "corrections", "personal",
    "private", "dataset", "partitioner", "model", "runtime", "logger",
)  # fmt: skip
LINE = re.compile(r"^( *)([\w.]+):(?: +(.*))?$")
ENTRY = re.compile(r"^(\w[\w, ]*) : (.*(?:\n    .*)*)", re.MULTILINE)
ROLE = re.compile(r":\w+:`~?(?:[\w.]*\.)?([\w.]+)`")
HIDDEN = (
    "sha256",
    "hydra",
    "defaults",
    "source",
    "folder",
)  # no settings of a reader's
Row = tuple[str, str, str]  # setting, default, meaning


def comments(text: str) -> dict[str, str]:
    """Return the comment beside each key of a YAML file, by the key's path."""
    path: list[tuple[int, str]] = []
    texts = {}
    for line in text.splitlines():
        if match := LINE.match(line):
            depth = len(match[1])
            path = [
                *((d, key) for d, key in path if d < depth),
                (depth, match[2]),
            ]
            _, _, comment = (match[3] or "").partition("# ")
            if comment:
                texts[".".join(key for _, key in path)] = comment.strip()
    return texts


def values(tree: Any, prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield (path, value, the class beside it) of each value that is a setting of its own."""
    for key, value in tree.items():
        if key in HIDDEN or key.startswith("_"):
            continue
        if isinstance(value, dict) and value:
            yield from values(value, f"{prefix}{key}.")
        elif "${" not in str(value):
            yield f"{prefix}{key}", value, tree.get("_target_")


def meaning(target: str | None, name: str) -> str:
    """Return what a class, or one that it extends, says of a setting in its docstring."""
    if target is None:
        return ""
    module, _, kind = target.rpartition(".")
    documented = getattr(import_module(module), kind)
    for each in getattr(documented, "__mro__", (documented,)):
        for names, text in ENTRY.findall(_without_indent(each.__doc__ or "")):
            if name in names.replace(" ", "").split(","):
                return ROLE.sub(r"`\1`", " ".join(text.split()))
    return ""


def _without_indent(text: str) -> str:
    first, _, rest = text.partition("\n")
    indents = [
        len(line) - len(line.lstrip())
        for line in rest.splitlines()
        if line.strip()
    ]
    return "\n".join(
        [
            first,
            *(line[min(indents, default=0) :] for line in rest.splitlines()),
        ]
    )


def rows(path: Path) -> Iterator[Row]:
    """Yield the settings of one file of conf/."""
    text = path.read_text(encoding="utf-8")
    package = re.search(r"^# @package (\S+)", text, re.MULTILINE)
    prefix = package[1] if package else path.parent.relative_to(CONF).as_posix()
    prefix = "" if prefix in (".", "_global_") else f"{prefix}."
    tree = yaml.safe_load(text) or {}
    parents = [
        path.parent / f"{name}.yaml"
        for name in tree.get("defaults", ())
        if isinstance(name, str)
    ]
    sources = [
        text,
        *(
            parent.read_text(encoding="utf-8")
            for parent in parents
            if parent.exists()
        ),
    ]
    comments_of = {
        name: words
        for source in reversed(sources)
        for name, words in comments(source).items()
    }
    targets = [yaml.safe_load(source).get("_target_") for source in sources[1:]]
    for name, value, target in values(tree):
        key = name.rpartition(".")[2]
        meanings = (
            comments_of.get(name),
            *(meaning(kind, key) for kind in (target, *targets)),
            key.replace("_", " "),
        )
        yield f"{prefix}{name}", _format(value), next(filter(None, meanings))


def _format(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_format, value))}]"
    return value or "''" if isinstance(value, str) else json.dumps(value)


def _head(path: Path) -> str:
    """Return what a file says of itself in its first comments, or its class in its docstring's first line."""
    text = path.read_text(encoding="utf-8")
    lines = [
        line[2:]
        for line in text.splitlines()
        if line.startswith("# ") and "@package" not in line
    ]
    if lines:
        return " ".join(lines)
    tree = yaml.safe_load(text) or {}
    target = next((t for t in _targets(tree)), None)
    if target is None:
        return ""
    module, _, kind = target.rpartition(".")
    summary, _, _ = (
        (getattr(import_module(module), kind).__doc__ or "")
        .strip()
        .partition("\n\n")
    )
    return ROLE.sub(r"`\1`", " ".join(summary.split()))


def _targets(tree: Any) -> Iterator[str]:
    if isinstance(tree, dict):
        if "_target_" in tree:
            yield tree["_target_"]
        for value in tree.values():
            yield from _targets(value)


def _format_options(stems: list[str]) -> str:
    return (
        "all" if "base" in stems else ", ".join(f"`{stem}`" for stem in stems)
    )


def table(head: tuple[str, ...], lines: list[tuple[str, ...]]) -> str:
    """Return a table in Markdown."""
    escaped = [
        tuple(cell.replace("|", "\\|") for cell in line)
        for line in (head, *lines)
    ]
    rule = tuple("---" for _ in head)
    return "\n".join(
        f"| {' | '.join(line)} |" for line in (escaped[0], rule, *escaped[1:])
    )


def page() -> str:
    """Return the page."""
    parts = [
        "# All settings\n\n"
        "Generated from `conf/` by `python docs/site/settings.py`. `group=option` chooses an option, `key=value` sets\n"
        "a value: `python -m baselines.run strategy=fedprox strategy.mu=0.1`.\n",
        "## An experiment\n",
        table(
            ("setting", "default", "meaning"),
            [(f"`{n}`", f"`{d}`", m) for n, d, m in rows(CONF / "config.yaml")],
        ),
    ]
    for group in GROUPS:
        paths = sorted((CONF / group).glob("*.yaml"))
        options = [
            (f"`{path.stem}`", _head(path))
            for path in paths
            if path.stem != "base"
        ]
        merged: dict[Row, list[str]] = {}
        for path in paths:
            for row in rows(path):
                merged.setdefault(row, []).append(path.stem)
        settings = [
            (f"`{name}`", f"`{default}`", _format_options(stems), words)
            for (name, default, words), stems in merged.items()
        ]
        parts += [f"\n## `{group}=`\n", table(("option", "meaning"), options)]
        if settings:
            parts += [
                "",
                table(("setting", "default", "of", "meaning"), settings),
            ]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    PAGE.write_text(page(), encoding="utf-8")
