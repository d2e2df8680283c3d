"""The same seed gives the same metrics on every runtime, byte for byte."""

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

pytestmark = [pytest.mark.runtime, pytest.mark.slow]

# SCAFFOLD: its variates live in the nodes' state from round to round; and nodes that train and evaluate.
SETTING = (
    "strategy=scaffold dataset=digits partitioner=dirichlet num_nodes=2 rounds=2 node_test_fraction=0.2 "
    "evaluate_every=2 seed=3"
)


def run(runtime: str, folder: Path) -> list[str]:
    """Run the setting as a user does; return metrics.csv without the rows that are times."""
    command = [sys.executable, "-m", "baselines.run", f"runtime={runtime}", f"hydra.run.dir={folder}"]
    done = subprocess.run(
        [*command, *SETTING.split()], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (folder / "figures" / "metrics.png").exists()
    return [row for row in (folder / "metrics.csv").read_text().splitlines() if "seconds" not in row]


@pytest.fixture(scope="module")
def on_inline(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    rows = run("inline", tmp_path_factory.mktemp("inline"))
    assert len(rows) > 20
    return rows


@pytest.mark.parametrize("runtime", ["ray runtime.cpus=2", "superlink"])
def test_every_runtime_gives_the_metrics_of_inline(
    runtime: str, on_inline: list[str], tmp_path: Path
) -> None:
    assert run(runtime, tmp_path) == on_inline
