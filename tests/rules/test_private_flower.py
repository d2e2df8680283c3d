"""What is not public in Flower is imported in one file."""

import ast
import importlib
import sys
import tomllib
from pathlib import Path

import flwr.app
import flwr.clientapp
import flwr.serverapp
import pytest

from helpers.checkout import ROOT
from helpers.source import FILES, imported, name_of
from strategies.shared import flower_private

PUBLIC = ("flwr.app.", "flwr.clientapp.", "flwr.serverapp.", "flwr.simulation.run_simulation")
PRIVATE = "strategies/shared/flower_private.py"


@pytest.mark.parametrize("path", [path for path in FILES if name_of(path) != PRIVATE], ids=name_of)
def test_only_public_flower_is_imported(path: Path) -> None:
    theirs = [name for name in imported(path) if name.split(".")[0] == "flwr"]
    assert [name for name in theirs if not name.startswith(PUBLIC)] == []


def test_the_private_file_is_needed() -> None:
    """Each name in it would be imported from Flower's public packages if it were there."""
    tree = ast.parse(Path(flower_private.__file__).read_text())
    private = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module and not f"{node.module}.".startswith(PUBLIC)
        for alias in node.names
        if node.module.startswith("flwr")
    }
    public = {*flwr.app.__all__, *flwr.clientapp.__all__, *flwr.serverapp.__all__}
    assert private
    assert not private & public


def test_the_flower_that_is_tested_is_the_one_that_is_installed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert flower_private.TESTED_FLOWER.replace("flwr", "flwr[simulation]") in project["dependencies"]
    newest = (ROOT / "scripts" / "test-newest").read_text()
    assert flower_private.TESTED_FLOWER.partition(",")[2] in newest  # nothing above what it has passed


def test_another_flower_is_told_which_one_is_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flwr.supercore.run", None)
    with pytest.raises(ImportError, match=r"^Flower [\d.]+ lacks .* tested with flwr>=1\.39,<1\.\d+; pip"):
        importlib.reload(flower_private)
