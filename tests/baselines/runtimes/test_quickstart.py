"""examples/quickstart: Flower's quickstart with a strategy of ours, its ClientApp as it is."""

import sys
import tomllib
from pathlib import Path

import pytest
import torch
from checkout import ROOT
from flwr.app import Context, RecordDict

from baselines.grids.inline import InlineGrid

pytestmark = pytest.mark.runtime
APP = ROOT / "examples" / "quickstart"
CONFIG = tomllib.loads((APP / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]


class Configured(InlineGrid):
    """Nodes that are told the app's configuration, as a SuperLink would."""

    def context(self, node_id: int) -> Context:
        found = super().context(node_id)
        found.run_config = CONFIG
        return found


def test_the_quickstart_learns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(APP), *sys.path])
    from quickstart import client_app, server_app, task  # type: ignore[import-not-found]

    torch.manual_seed(0)
    server_app.app(Configured(client_app.app, 4), Context(1, 1, {}, RecordDict(), CONFIG))
    model = task.Net()
    model.load_state_dict(torch.load(tmp_path / "final_model.pt"))
    accuracy = [task.test(model, task.load_data(k, 4, 64)[1])[1] for k in range(4)]
    assert sum(accuracy) / 4 > 0.8


def test_one_line_is_ours() -> None:
    text = (APP / "quickstart" / "server_app.py").read_text()
    code = [line for line in text.splitlines() if "FedExP" in line]
    assert len(code) == 2  # the import, and the line
    assert code[1].startswith("    strategy = FedExP()")
