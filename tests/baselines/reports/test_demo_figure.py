"""docs/demo.png is what scripts/demo draws today."""

import os
import re
import shlex
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from baselines import compare
from baselines.experiment.overrides import ROOT

NEAR = 2.0  # of 255, on average: another processor rounds otherwise, another style changes far more


@pytest.mark.slow
def test_the_demos_figure_is_the_one_that_is_shown(tmp_path: Path) -> None:
    """`scripts/demo` draws outputs/demo/demo.png: copy it to docs/demo.png."""
    script = (
        (ROOT / "scripts" / "demo").read_text().replace("\\\n", " ").replace("outputs/demo", str(tmp_path))
    )
    run, comparison = re.findall(r"^\.venv/bin/python (-m baselines\..*)$", script, flags=re.M)
    env = os.environ | {"FLWR_TELEMETRY_ENABLED": "0"}
    subprocess.run([ROOT / ".venv/bin/python", *shlex.split(run)], cwd=ROOT, env=env, check=True)
    assert compare.main(shlex.split(comparison)[2:]) == 0
    drawn, published = (
        np.asarray(Image.open(path).convert("RGB"), float)
        for path in (tmp_path / "demo.png", ROOT / "docs" / "demo.png")
    )
    assert drawn.shape == published.shape
    assert np.abs(drawn - published).mean() < NEAR
