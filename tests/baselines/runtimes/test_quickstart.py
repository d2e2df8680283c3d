"""examples/quickstart: Flower's quickstart with a strategy of ours, its ClientApp as it is."""

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch
from flwr.app import Context, RecordDict

from baselines.grids.inline import InlineGrid
from helpers.checkout import ROOT

pytestmark = pytest.mark.runtime
APP = ROOT / "examples" / "quickstart"
COMMAND = "flwr run examples/quickstart --stream"
CONFIG = tomllib.loads((APP / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]


class Configured(InlineGrid):
    """Nodes that are told the app's configuration, as a SuperLink would."""

    def context(self, node_id: int) -> Context:
        context = super().context(node_id)
        context.run_config = CONFIG
        return context


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


def test_the_readme_names_the_command_that_the_next_test_runs() -> None:
    (block,) = re.findall(r"^```console\n(.*?)^```$", (APP / "README.md").read_text(), flags=re.M | re.S)
    assert block == f"$ pip install -e . && {COMMAND}\n"


def test_flower_installs_nothing_that_no_registry_has() -> None:
    assert tomllib.loads((APP / "pyproject.toml").read_text())["project"]["dependencies"] == []


@pytest.mark.slow
def test_the_command_of_the_readme_runs_on_a_fresh_copy(tmp_path: Path, reader: dict[str, str]) -> None:
    """With Flower's default settings: its installation of dependencies is not turned off."""
    ignored = shutil.ignore_patterns("__pycache__", "*.pt")
    shutil.copytree(APP, tmp_path / "examples" / "quickstart", ignore=ignored)
    run = subprocess.run(
        shlex.split(COMMAND), cwd=tmp_path, env=reader, capture_output=True, text=True, timeout=300
    )
    assert run.returncode == 0, run.stderr
    assert "Strategy execution finished" in run.stdout, run.stdout[-3000:]
    assert len(torch.load(tmp_path / "final_model.pt")) == 4
