"""The height and the smoothness of a loss curve, worked out by hand."""

from pathlib import Path

import pandas as pd
import pytest

from baselines.errors import UserError
from baselines.reproduce.statistics import (
    initial_mean,
    last_log10_loss,
    log10_step_spread,
    mean_log10_loss,
    roughness,
    rounds_to_best,
    step_spread,
)


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


def test_a_curve_of_a_table_says_more_than_its_last_value() -> None:
    """Rounds 0 to 10 are the first, whichever are drawn; the changes are those of the smoothness above."""
    curve = pd.Series([0.0, 60.0, 90.0, 97.0, 97.5, 96.9], index=[0, 2, 10, 12, 14, 16])
    assert initial_mean(curve) == 75.0
    assert rounds_to_best(curve) == 12  # half a point below the best is near enough
    losses = pd.Series([1.0, 1e-2, 1e-4, 1e-3, 1e-5], index=[19, 20, 21, 22, 23])
    assert log10_step_spread(losses) == pytest.approx(2**0.5)
    assert step_spread(pd.Series([5.0, 6.0, 7.0], index=[20, 21, 22])) == 0


def test_the_last_loss_as_a_power_of_ten(tmp_path: Path) -> None:
    assert last_log10_loss(run_with({20: 1.0, 21: 1e-3}, tmp_path)) == pytest.approx(-3)
