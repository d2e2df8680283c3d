"""A picture for each kind of table."""

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from baselines.reports.names import COLOURS
from baselines.reproduce.figures import _departure, draw_figure
from baselines.reproduce.plan import table_of
from baselines.reproduce.results import Ours, Results

TABLES = [("gma", "table4_4"), ("gma", "figure4_2a"), ("selective", "figures7_1_to_7_3")]


def drawn(
    paper: str, name: str, changes: str, curves: pd.DataFrame, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Figure:
    """Return the figure that is drawn of a table's first cells, or of all where there are curves."""
    kept: list[Figure] = []
    monkeypatch.setattr(plt, "close", kept.append)
    table = table_of(paper, name)
    cells = table.cells()[:5] if curves.empty else table.cells()
    results: Results = {tuple(cell.keys.values()): Ours({0: 1.0, 1: 2.0}, changes) for cell in cells}
    target = draw_figure(table, results, curves, folder)
    assert target is not None
    assert target.read_bytes().startswith(b"\x89PNG")
    return kept[0]


@pytest.mark.parametrize(("paper", "name"), TABLES)
def test_paper_and_ours(paper: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figure = drawn(paper, name, "", pd.DataFrame(), tmp_path, monkeypatch)
    spread = "whiskers: one standard deviation over seeds to each side"
    assert figure.get_supxlabel() == spread
    reduced = drawn(paper, name, "rounds=2", pd.DataFrame(), tmp_path, monkeypatch)
    assert reduced.get_supxlabel() == f"{spread}\nnot the paper's setting: rounds=2"
    table = table_of(paper, name)
    first, second = (tuple(cell.keys.values()) for cell in table.cells()[:2])
    both: Results = {first: Ours({0: 1.0}, "rounds=2"), second: Ours({0: 2.0}, "")}
    assert _departure(both) == "not all in the paper's setting: see the table"
    both[second] = Ours({0: 2.0}, "rounds=3")
    assert _departure(both) == "none in the paper's setting: see the table"


def test_no_line_is_drawn_across_what_has_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Figure] = []
    monkeypatch.setattr(plt, "close", kept.append)
    table = table_of("selective", "figures7_1_to_7_3")
    ran = {("cnn4", "0", "local"): 0.3, ("cnn4", "10", "local"): 0.8, ("cnn4", "100", "local"): 0.9}
    results: Results = {keys: Ours({0: value}, "") for keys, value in ran.items()}
    draw_figure(table, results, pd.DataFrame(), tmp_path)
    (axis,) = kept[0].axes
    heights = axis.lines[0].get_ydata()
    assert [x for x, y in enumerate(heights) if y == y] == [0, 1, 5]
    assert len(heights) == 6


def test_curves_have_a_panel_for_each_value_of_the_first_column(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = [
        {
            "data_seed": data,
            "method": method,
            "seed": "0",
            "changes": "",
            "round": str(r),
            "value": str(r + 1),
        }
        for data in ("0", "42")
        for method in ("fedexp", "fedavg", "fedprox")
        for r in range(3)
    ]
    figure = drawn("fedexp", "figure_200_rounds", "", pd.DataFrame(points), tmp_path, monkeypatch)
    assert [axis.get_title() for axis in figure.axes] == ["draw of the data 0", "draw of the data 42"]
    assert [len(axis.lines) for axis in figure.axes] == [3, 3]
    assert [list(line.get_ydata()) for line in figure.axes[0].lines] == [[1, 2, 3]] * 3


def test_curves_of_another_setting_than_the_numbers_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {"data_seed": "0", "method": "fedexp", "seed": "0"}
    points = [
        keys | {"changes": changes, "round": str(r), "value": value}
        for changes, value in (("rounds=2", "1"), ("rounds=2 num_nodes=5", "3"))
        for r in range(2)
    ]
    figure = drawn("fedexp", "figure_200_rounds", "rounds=2", pd.DataFrame(points), tmp_path, monkeypatch)
    (line,) = figure.axes[0].lines
    assert list(line.get_ydata()) == [1, 1]


def test_nothing_of_ours_is_no_picture(tmp_path: Path) -> None:
    assert draw_figure(table_of("weight_erosion", "table2"), {}, pd.DataFrame(), tmp_path) is None


def test_the_authors_curves_are_drawn_beside_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {"distribution": "B", "num_nodes": "10", "seed": "0", "changes": ""}
    points = [
        keys | {"method": m, "round": str(r), "value": "0.9"} for m in ("fedavg", "local") for r in (0, 1)
    ]
    figure = drawn("weight_erosion", "figure2", "", pd.DataFrame(points), tmp_path, monkeypatch)
    (axis,) = figure.axes
    assert axis.get_title() == "distribution B, 10 nodes"
    ours, theirs = axis.lines[2:]  # of local training
    assert list(ours.get_ydata()) == [90, 90]
    assert theirs.get_color() == ours.get_color() == COLOURS["grey"]  # local training's in every figure
    assert (theirs.get_linestyle(), theirs.get_marker()) == ("None", "o")
    assert list(theirs.get_xdata()) == list(range(1, 31))
    assert list(theirs.get_ydata())[:2] == pytest.approx([96.963, 98.373])


def test_two_columns_make_a_grid_with_gaps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = [("A", "50"), ("A", "100"), ("B", "10"), ("B", "100")]
    whole = replace(table_of("weight_erosion", "figure2"), panels={})
    monkeypatch.setattr(f"{__name__}.table_of", lambda paper, name: whole)
    points = [
        {
            "distribution": d,
            "num_nodes": n,
            "method": "fedavg",
            "seed": "0",
            "changes": "",
            "round": r,
            "value": "1",
        }
        for d, n in ran
        for r in ("0", "1")
    ]
    figure = drawn("weight_erosion", "figure2", "", pd.DataFrame(points), tmp_path, monkeypatch)
    places = {}
    for axis in figure.axes:
        place = axis.get_subplotspec()
        assert place is not None
        places[axis.get_title()] = (place.rowspan.start, place.colspan.start)
    assert places == {
        "distribution A, 50 nodes": (0, 1),
        "distribution A, 100 nodes": (0, 2),
        "distribution B, 10 nodes": (1, 0),
        "distribution B, 100 nodes": (1, 2),
    }
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["FedAvg"]


def test_what_has_not_been_run_has_no_panel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figure = drawn("selective", "figures7_1_to_7_3", "", pd.DataFrame(), tmp_path, monkeypatch)
    assert [axis.get_title() for axis in figure.axes] == [
        "model 1 (30 neurons)"
    ]  # the first five cells are of one model


def test_an_axis_that_is_cut_below_ends_just_above_its_curves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not as far above as it would without the cut: 0.05 of what is shown."""
    keys = {"aggregation": "gma", "seed": "0", "changes": ""}
    points = [keys | {"round": str(r), "value": value} for r, value in enumerate(("10", "96", "99"))]
    figure = drawn("gma", "figure3_2", "", pd.DataFrame(points), tmp_path, monkeypatch)
    assert figure.axes[0].get_ylim() == pytest.approx((90, 99.45))


def test_a_figure_has_the_panels_of_the_papers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The report's figure 2 has four of the 28; its accuracies are in per cent."""
    points = [
        {
            "distribution": d,
            "num_nodes": n,
            "method": "local",
            "seed": "0",
            "changes": "",
            "round": r,
            "value": "0.9",
        }
        for d in "ABF"
        for n in ("10", "20", "100")
        for r in ("0", "1")
    ]
    figure = drawn("weight_erosion", "figure2", "", pd.DataFrame(points), tmp_path, monkeypatch)
    titles = [f"distribution {label}, {nodes} nodes" for label in "BF" for nodes in (10, 100)]
    assert [axis.get_title() for axis in figure.axes] == titles
    assert figure.axes[0].get_ylabel() == "test accuracy (%)"
    assert figure.axes[0].get_ylim()[0] == 85
