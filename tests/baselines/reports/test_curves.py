"""Curves by round, with their spread over seeds."""

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from matplotlib.figure import Figure
from runs import METRICS

from baselines.reports import curves


def figure_of(
    rows: dict[str, pd.DataFrame], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Figure]:
    """Yield the figure while it is open."""
    with monkeypatch.context() as patched:
        patched.setattr(curves.plt, "close", lambda figure: None)
        curves.draw(rows, tmp_path / "figure.png")
    curves.plt.gcf().canvas.draw()
    yield curves.plt.gcf()
    curves.plt.close()


def test_the_band_is_the_spread_over_seeds_of_the_mean_over_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {(0, "a"): 0.0, (0, "b"): 0.4, (1, "a"): 0.2, (1, "b"): 1.0}  # means 0.2 and 0.6
    rows = [(1, "test", model, "accuracy", value, seed) for (seed, model), value in values.items()]
    settings = {"": pd.DataFrame(rows, columns=METRICS)}
    for figure in figure_of(settings, tmp_path, monkeypatch):
        (axis,) = figure.axes
        assert axis.lines[0].get_ydata() == pytest.approx([0.4])
        band = axis.collections[0].get_paths()[0].vertices[:, 1]
        assert (min(band), max(band)) == pytest.approx((0.4 - 0.08**0.5, 0.4 + 0.08**0.5))


def test_the_legend_is_within_the_figure_and_beside_no_curve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = pd.DataFrame([(t, "test", "global", "loss", 1.0 / t, 0) for t in (1, 2)], columns=METRICS)
    for length in (3, 30, 60):
        for figure in figure_of({f"{k:0{length}}": rows for k in range(12)}, tmp_path, monkeypatch):
            (legend,), (axis,) = figure.legends, figure.axes
            box, panel = legend.get_window_extent(), axis.get_tightbbox()
            assert box.x0 >= 0
            assert box.y0 >= 0
            assert box.x1 <= figure.bbox.x1
            assert box.y1 <= panel.y0
            assert panel.height > 200  # at 100 dots per inch
            assert len({(line.get_color(), line.get_linestyle()) for line in axis.lines}) == 12


@pytest.mark.parametrize(("steps", "panels"), [((1.0, 1.0), 1), ((1.0, 1.5), 2)])
def test_a_step_size_that_never_changes_has_no_panel(
    steps: tuple[float, float], panels: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = [(1, "test", "global", "loss", 1.0, 0)]
    measured += [(t, "train", "global", "step_size", step, 0) for t, step in enumerate(steps)]
    for figure in figure_of({"": pd.DataFrame(measured, columns=METRICS)}, tmp_path, monkeypatch):
        assert len(figure.axes) == panels
