"""examples/from_sweep_to_figure.ipynb runs as it stands, and shows what it gives."""

import ast
import json
import re
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd
import pytest

from baselines.experiment.overrides import ROOT

mpl.use("Agg")
NOTEBOOK = ROOT / "examples" / "from_sweep_to_figure.ipynb"
NUMBER = re.compile(r"-?\d+\.\d+|\d+")


def cells() -> list[dict[str, Any]]:
    """Return the notebook's cells of code."""
    return [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]


def value_of(code: str, names: dict[str, Any]) -> object:
    """Run a cell; return its last line's value, if that is an expression."""
    tree = ast.parse(code)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, NOTEBOOK.name, "exec"), names)
    if last is None:
        return None
    assert isinstance(last, ast.Expr)
    return eval(compile(ast.Expression(last.value), NOTEBOOK.name, "eval"), names)


@pytest.mark.slow
def test_each_cell_gives_what_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    compared = 0
    for cell in cells():
        given = value_of("".join(cell["source"]), names)
        outputs = [
            "".join(o["data"]["text/plain"])
            for o in cell["outputs"]
            if o["output_type"] == "execute_result"
        ]
        if outputs:
            text = given.to_string() if isinstance(given, pd.DataFrame) else str(given)  # all columns
            mine, theirs = ([float(n) for n in NUMBER.findall(one)] for one in (text, outputs[0]))
            assert mine == pytest.approx(theirs, abs=0.02)  # another processor rounds otherwise
            compared += len(theirs)
    assert compared > 40
    assert (tmp_path / "accuracy.pdf").read_bytes().startswith(b"%PDF")


def test_it_has_been_run() -> None:
    assert [cell["execution_count"] for cell in cells()] == [*range(1, len(cells()) + 1)]
    assert any("image/png" in output.get("data", {}) for cell in cells() for output in cell["outputs"])
