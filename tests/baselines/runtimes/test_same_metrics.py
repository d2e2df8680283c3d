"""The same seed gives the same metrics on every runtime, byte for byte."""

import subprocess
import sys
from pathlib import Path

import pytest
from checkout import ROOT

from baselines.runtimes import Inline

pytestmark = [pytest.mark.runtime, pytest.mark.slow]

# SCAFFOLD, because its variates live in the nodes' state from round to round.
SETTING = "strategy=scaffold dataset=digits partitioner=dirichlet num_nodes=2 rounds=2 seed=3"


def rows_in(folder: Path) -> list[str]:
    """Return metrics.csv without the rows that are times."""
    return [row for row in (folder / "metrics.csv").read_text().splitlines() if "seconds" not in row]


@pytest.mark.parametrize(
    ("runtime", "more"),
    [("ray", "runtime.cpus=2 node_test_fraction=0.2 nodes_per_round=1"), ("superlink", "")],
)
def test_every_runtime_gives_the_metrics_of_inline(runtime: str, more: str, tmp_path: Path) -> None:
    setting = f"{SETTING} runtime={runtime} {more}"
    Inline().run(setting, 2, tmp_path / "inline")
    expected = rows_in(tmp_path / "inline")
    assert len(expected) > 20
    command = [sys.executable, "-m", "baselines.run", f"hydra.run.dir={tmp_path / runtime}"]
    done = subprocess.run(
        [*command, *setting.split()], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert rows_in(tmp_path / runtime) == expected
    assert (tmp_path / runtime / "figures" / "metrics.png").exists()
