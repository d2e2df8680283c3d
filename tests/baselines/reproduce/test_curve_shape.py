"""The height and the smoothness of a loss curve, worked out by hand."""

from pathlib import Path

import pytest

from baselines.errors import UserError
from baselines.reproduce.statistics import mean_log10_loss, roughness


def run_with(losses: dict[int, float], folder: Path) -> Path:
    lines = [f"{number},test,global,loss,{loss!r}" for number, loss in losses.items()]
    text = "\n".join(["round,split,model,metric,value", "20,train,global,loss,7.0", *lines])
    (folder / "metrics.csv").write_text(text + "\n")
    return folder


def test_both_leave_out_the_first_rounds(tmp_path: Path) -> None:
    folder = run_with({0: 1.0, 19: 1e9, 20: 1e-2, 21: 1e-4, 22: 1e-3, 23: 1e-5}, tmp_path)
    assert mean_log10_loss(folder) == pytest.approx(-(2 + 4 + 3 + 5) / 4)
    # changes -2, +1, -2: mean -1, squared distances 1, 4, 1
    assert roughness(folder) == pytest.approx(2**0.5)


def test_a_straight_fall_is_smooth(tmp_path: Path) -> None:
    assert roughness(run_with({k: 10.0**-k for k in range(20, 30)}, tmp_path)) == pytest.approx(
        0, abs=1e-12
    )


def test_a_short_run_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no test loss from round 20 on: run it for more rounds"):
        roughness(run_with({0: 1.0, 5: 0.5}, tmp_path))
