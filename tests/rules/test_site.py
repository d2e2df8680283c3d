"""The documentation's site: it builds without a warning, and shows docstrings and links as meant."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from baselines.experiment.overrides import ROOT
from baselines.reproduce import paper_tables

QUIET = {"NO_MKDOCS_2_WARNING": "1"}


def module(name: str) -> ModuleType:
    """Return one of MkDocs' hooks, which belong to no package."""
    pytest.importorskip("mkdocstrings")
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / "site" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


@pytest.mark.slow
def test_the_site_builds_strictly(tmp_path: Path) -> None:
    pytest.importorskip("mkdocstrings")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | QUIET, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    parts = (tmp_path / "api" / "parts" / "index.html").read_text()
    assert "AgreementMask" in parts
    front = (tmp_path / "index.html").read_text()
    assert 'href="papers/gma/"' in front
    assert 'src="papers/gma/ours/' not in front
    page = (tmp_path / "papers" / "gma" / "index.html").read_text()
    assert 'href="ours/table4_4/"' in page
    assert 'src="ours/table4_4.png"' in page
    for paper in paper_tables.papers():  # a mark that Markdown takes for text would show
        assert "&lt;!--" not in (tmp_path / "papers" / paper / "index.html").read_text()
    assert not list(tmp_path.rglob("*.py"))


def test_links_out_of_the_site_become_names() -> None:
    place = module("pages").place
    assert place(ROOT / "README.md") == "index.md"
    assert place(ROOT / "docs" / "runs.md") == "runs.md"
    assert place(ROOT / "baselines" / "papers" / "gma" / "README.md") == "papers/gma/index.md"
    assert place(ROOT / "strategies" / "fedexp.py") is None
    assert place(Path("/etc/hosts")) is None


def test_docstrings_as_markdown() -> None:
    text = """Take a step; see :class:`~strategies.parts.mask.Mask`.

Parameters
----------
eta : how far; ``None`` is 1
    and on
tau, mu : two

Raises
------
ValueError : always
"""
    assert module("docstrings").in_markdown(text) == (
        "Take a step; see `Mask`.\n\n"
        "**Parameters**\n\n* `eta`: how far; ``None`` is 1\n    and on\n* `tau, mu`: two\n\n\n"
        "**Raises**\n\n* `ValueError`: always"
    )
