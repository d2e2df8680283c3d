"""The documentation's site: it builds without a warning, and shows docstrings and links as meant."""

import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from baselines.experiment.overrides import ROOT
from baselines.reproduce import paper_tables

QUIET = {"NO_MKDOCS_2_WARNING": "1"}


def module(name: str) -> ModuleType:
    """Return one of MkDocs' hooks, which belong to no package."""
    pytest.importorskip("mkdocstrings")
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / "site" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


@pytest.mark.slow
def test_the_site_builds_strictly(tmp_path: Path) -> None:
    pytest.importorskip("mkdocstrings")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | QUIET, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    parts = (tmp_path / "reference" / "parts" / "index.html").read_text()
    assert "AgreementMask" in parts
    strategies = (tmp_path / "reference" / "strategies" / "index.html").read_text()
    assert 'href="#strategies.core.strategy.BaseStrategy">BaseStrategy</a>' in strategies  # a base class
    assert 'id="strategies.core.pseudo_gradient.PseudoGradientStrategy.choose"' in strategies
    assert 'id="strategies.core.pseudo_gradient.PseudoGradientStrategy.sent_record"' in strategies
    assert "FedExP(\n    *,\n" in re.sub("<[^>]+>", "", strategies)  # a signature
    runs = (tmp_path / "runs" / "index.html").read_text()
    assert 'data-copy="python -m baselines.run strategy=fedexp dataset=digits rounds=30"' in runs
    assert "md-footer__link--next" in runs
    front = (tmp_path / "index.html").read_text()
    assert 'href="papers/gma/"' in front
    assert 'src="papers/gma/ours/' not in front
    assert re.findall(r'src(?:set)?="(overview[^"]*)"', front) == ["overview-narrow.png", "overview.png"]
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


def test_links_to_source() -> None:
    source_link = module("pages").source_link
    path = ROOT / "strategies" / "fedexp.py"
    address = "https://example.org/florilegium/"
    linked = f"[FedExP]({address}blob/main/strategies/fedexp.py)"
    assert source_link("FedExP", path, address) == linked
    assert source_link("conf/", ROOT / "conf", address) == f"[conf/]({address}tree/main/conf)"
    assert source_link("FedExP", path, "") == "FedExP (`strategies/fedexp.py`)"
    assert source_link("`strategies/fedexp.py`", path, "") == "`strategies/fedexp.py`"  # once
    assert source_link("`fedexp.py`", path, "") == "`strategies/fedexp.py`"


def test_the_copy_button_takes_commands_without_prompts() -> None:
    block = (
        '<div class="highlight"><pre><code><span class="gp">$ </span>a <span>&quot;b&quot;</span> \\\n'
        '    c\n<span class="gp">$ </span>d</code></pre></div>'
    )
    page = f'{block}<div class="highlight"><pre>x</pre></div>'
    copied = module("pages").on_page_content(page)
    start = '<div data-copy="a &quot;b&quot; \\\n    c\nd" class="highlight">'
    assert copied == page.replace('<div class="highlight">', start, 1)


def test_the_settings_are_those_of_conf() -> None:
    settings = module("settings")
    assert settings.PAGE.read_text(encoding="utf-8") == settings.page(), "run python docs/site/settings.py"
    groups = {path.name for path in settings.CONF.iterdir() if path.is_dir()}
    assert groups - {"experiment", "hydra"} == set(settings.GROUPS)


def test_a_setting_is_read_with_its_comment_or_docstring(tmp_path: Path) -> None:
    settings = module("settings")
    settings.CONF = tmp_path
    (tmp_path / "mask").mkdir()
    (tmp_path / "mask" / "mine.yaml").write_text(
        "# Mine.\n# @package mask.mine\n_target_: strategies.AndMask\ntau: 0.5\n"
        "deep:\n  own_name: [1, two] # said here\n  other: ${seed}\n  last_one: null\n"
    )
    assert list(settings.rows(tmp_path / "mask" / "mine.yaml")) == [
        ("mask.mine.tau", "0.5", "agreement threshold in [0, 1]; 0 masks nothing"),
        ("mask.mine.deep.own_name", "[1, two]", "said here"),
        ("mask.mine.deep.last_one", "null", "last one"),
    ]


def test_every_hook_of_the_page_exists() -> None:
    page = (ROOT / "docs" / "hooks.md").read_text(encoding="utf-8")
    packages = [importlib.import_module(name) for name in ("strategies", "clients")]
    rows = [line for line in page.splitlines() if line.startswith("| ") and "`" in line]
    assert len(rows) > 20
    for row in rows:
        _, hooks, _, example = (cell.strip() for cell in row.strip("|").split(" | "))
        for kind, hook in re.findall(r"`(\w+)\.(\w+)[^`]*`", hooks):
            (owner,) = {getattr(package, kind) for package in packages if hasattr(package, kind)}
            assert hasattr(owner, hook) or hook in owner.__dataclass_fields__, hooks
        name, file = re.findall(r"`([^`]+)`", example)
        assert f"class {name}(" in (ROOT / file).read_text(encoding="utf-8"), example


def test_the_citation_is_of_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors", "version"} <= citation.keys()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert citation["version"] == project["version"]


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


def test_the_comment_behind_a_class_variable_is_its_docstring() -> None:
    griffe = pytest.importorskip("griffe")
    code = (
        "from dataclasses import dataclass\nfrom typing import ClassVar\n\n@dataclass\nclass Part:\n"
        "    names: ClassVar[tuple[str, ...]] = ()  # names of records, e.g. a\n"
        "    share: ClassVar[float] = 1.0  # c_k of all\n"
        "    silent: ClassVar[str] = 'a # b'\n"
        "    rate: float = 0.1  # a field, which Parameters explain\n"
    )
    comment_of = module("docstrings").comment_of
    with griffe.temporary_visited_module(code) as visited:
        comments = {
            name: comment_of(one) for name, one in visited["Part"].members.items() if one.is_attribute
        }
    assert comments == {
        "names": "Names of records, e.g. a.",
        "share": "c_k of all.",
        "silent": "",
        "rate": "",
    }
