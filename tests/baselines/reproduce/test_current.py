"""Every committed table page and figure is that of the committed numbers."""

from pathlib import Path

import pytest

from baselines.reproduce import paper_tables, report, results
from baselines.reproduce.figures import draw_figure, figure_key, read_key
from baselines.reproduce.paper_tables import PaperTable
from helpers.checkout import ROOT
from helpers.source import name_of

FILES = sorted((ROOT / "baselines" / "papers").glob("*/ours/*.csv"))
TABLES = [file for file in FILES if not file.stem.endswith("_curves")]


@pytest.mark.exhaustive
@pytest.mark.parametrize("file", TABLES, ids=name_of)
def test_page_and_figure_are_those_of_the_numbers(file: Path) -> None:
    """`python -m baselines.reproduce --overview` renews them."""
    table = paper_tables.tables(file.parents[1].name)[file.stem]
    cells = results.settings(table, results.read(file), {})
    points = results.read(file.with_name(f"{file.stem}_curves.csv"))
    assert file.with_suffix(".md").read_text(encoding="utf-8") == report.markdown(table, cells)
    assert read_key(file.with_suffix(".png")) == figure_key(table, results.ours(cells), points)


def test_a_figure_is_drawn_again_where_what_it_shows_has_changed(tmp_path: Path, papers: Path) -> None:
    table = paper_tables.tables("tiny")["table1"]
    ours = {("0.2", "fedexp"): results.Ours({0: 91.0}, "")}
    none = results.read(tmp_path / "nothing.csv")
    drawn = draw_figure(table, ours, none, tmp_path)
    assert drawn is not None
    first = drawn.stat().st_mtime_ns
    said_otherwise = PaperTable(**{**vars(table), "findings": (), "readings": ({},)})
    draw_figure(said_otherwise, ours, none, tmp_path)
    assert drawn.stat().st_mtime_ns == first
    for other in (
        {("0.2", "fedexp"): results.Ours({0: 91.1}, "")},
        {("0.2", "fedexp"): results.Ours({0: 91.1}, "rounds=2")},
    ):
        before = read_key(drawn)
        draw_figure(table, other, none, tmp_path)
        assert read_key(drawn) == figure_key(table, other, none) != before
