"""Curves by round, with their spread over seeds."""

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from matplotlib.figure import Figure

from baselines import results
from baselines.errors import UserError
from baselines.reports import curves
from baselines.reports.runs import Panel
from helpers.runs import METRICS, write_run


def figure_of(rows: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Figure]:
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
    settings = pd.DataFrame(rows, columns=METRICS)
    for figure in figure_of(settings.assign(setting=""), tmp_path, monkeypatch):
        (axis,) = figure.axes
        assert axis.lines[0].get_ydata() == pytest.approx([40])
        band = axis.collections[0].get_paths()[0].vertices[:, 1]
        assert (min(band), max(band)) == pytest.approx((100 * (0.4 - 0.08**0.5), 100 * (0.4 + 0.08**0.5)))


@pytest.mark.slow
def test_the_legend_is_within_the_figure_and_beside_no_curve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = pd.DataFrame([(t, "test", "global", "loss", 1.0 / t, 0) for t in (1, 2)], columns=METRICS)
    for length in (3, 30, 60):
        many = pd.concat(rows.assign(setting=f"{k:0{length}}") for k in range(12))
        for figure in figure_of(many, tmp_path, monkeypatch):
            (legend,), (axis,) = figure.legends, figure.axes
            box, panel = legend.get_window_extent(), axis.get_tightbbox()
            assert box.x0 >= 0
            assert box.y0 >= 0
            assert box.x1 <= figure.bbox.x1
            assert box.y1 <= panel.y0
            assert panel.height > 200  # at 100 dots per inch
            assert len({(line.get_color(), line.get_marker()) for line in axis.lines}) == 12


@pytest.mark.parametrize(("steps", "panels"), [((1.0, 1.0), 1), ((1.0, 1.5), 2)])
def test_a_step_size_that_never_changes_has_no_panel(
    steps: tuple[float, float], panels: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = [(1, "test", "global", "loss", 1.0, 0)]
    measured += [(t, "train", "global", "step_size", step, 0) for t, step in enumerate(steps)]
    for figure in figure_of(
        pd.DataFrame(measured, columns=METRICS).assign(setting=""), tmp_path, monkeypatch
    ):
        assert len(figure.axes) == panels


def test_curves_that_lie_on_each_other_both_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one below is wider, its marks lie elsewhere; one that is alone is as thin as ever."""
    values = {"below": 1.0, "above": 1.0, "alone": 2.0}
    rows = [
        (t, "test", "global", "accuracy", value * t, 0, label)
        for label, value in values.items()
        for t in range(20)
    ]
    for figure in figure_of(pd.DataFrame(rows, columns=[*METRICS, "setting"]), tmp_path, monkeypatch):
        below, above, alone = figure.axes[0].lines
        assert below.get_linewidth() > above.get_linewidth() == alone.get_linewidth()
        assert below.get_markevery() != above.get_markevery()
        assert below.get_linestyle() != above.get_linestyle()


@pytest.mark.parametrize(("width", "inches"), [("column", 3.5), ("page", 7.16)])
def test_a_figure_for_a_paper_is_as_wide_as_its_column(
    width: str, inches: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [(t, "test", "global", m, 0.1 + t, 0, "all") for t in range(3) for m in ("accuracy", "loss")]
    frame = pd.DataFrame(rows, columns=[*METRICS, "setting"])
    monkeypatch.setattr(curves.plt, "close", lambda figure: None)
    curves.draw(frame, tmp_path / "figure.pdf", curves.Drawing(width=width))
    figure = curves.plt.gcf()
    assert figure.get_size_inches()[0] == inches
    assert (tmp_path / "figure.pdf").read_bytes().startswith(b"%PDF")
    left = {round(axis.get_position().x0, 2) for axis in figure.axes}
    assert len(left) == (1 if width == "column" else 2)  # below, or beside each other
    monkeypatch.undo()
    curves.plt.close()


@pytest.mark.parametrize(
    ("values", "scale", "ticks"),
    [
        ((2.3, 0.2), "log", {"0.2", "0.5", "1", "2"}),
        ((2.3, 1.1), "linear", set()),
        ((1.0, -1.0), "linear", set()),
    ],
)
def test_a_logarithmic_axis_has_numbers_to_read(
    values: tuple[float, float],
    scale: str,
    ticks: set[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = [(t, "test", "global", "loss", value, 0, "all") for t, value in enumerate(values)]
    for figure in figure_of(pd.DataFrame(rows, columns=[*METRICS, "setting"]), tmp_path, monkeypatch):
        (axis,) = figure.axes
        assert axis.get_yscale() == scale
        assert ticks <= {label.get_text() for label in axis.get_yticklabels()}


def test_curves_go_by_what_was_spent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seconds add up, also over rounds that are not evaluated; bytes go both ways."""
    rows = [(t, "test", "global", "accuracy", 0.1 * t, 0, "all") for t in (0, 2)]
    for t in (1, 2):
        spent = {"seconds": 0.5 * t, "virtual_seconds": 30.0 * t, "bytes_down": 2000.0, "bytes_up": 1000.0}
        rows += [(t, "train", "global", name, value, 0, "all") for name, value in spent.items()]
    frame = pd.DataFrame(rows, columns=[*METRICS, "setting"])
    accuracy = results.by_round(frame, "accuracy")
    assert list(curves.with_x(frame, accuracy, "seconds").x) == [0, 1.5]
    assert list(curves.with_x(frame, accuracy, "virtual_seconds").x) == [0, 90]
    assert list(curves.with_x(frame, accuracy, "bytes").x) == [0, 6000]
    assert curves.unit_of("virtual_seconds", 90) == ("virtual time (s)", 1)
    assert curves.unit_of("bytes", 6000) == ("sent, down and up (kB)", 1e3)
    with pytest.raises(UserError, match="count_bytes=true"):
        curves.with_x(frame[~frame.metric.str.startswith("bytes")], accuracy, "bytes")
    with pytest.raises(UserError, match="run it with a clock, e"):
        curves.with_x(frame[frame.metric != "virtual_seconds"], accuracy, "virtual_seconds")


def test_a_line_ends_with_the_first_of_its_seeds(tmp_path: Path) -> None:
    """A mean over those that go on would jump where a weak one has stopped."""
    write_run(tmp_path / "0", "strategy=fedavg", 0, [0.1, 0.2, 0.3, 0.9], "finished")
    write_run(tmp_path / "1", "strategy=fedavg", 1, [0.1, 0.1], "finished")
    frame = results.load(tmp_path)
    actual = curves.statistics(frame, Panel("test", "accuracy"), "round")
    assert actual["mean"].tolist() == pytest.approx([0.1, 0.15])
    assert curves.describe_bands(frame).endswith("A line ends with the first of its runs.")
