"""The figure of the front page: every paper has a row, and no text lies on another or is cut off."""

from itertools import combinations
from pathlib import Path

import pytest
from matplotlib import pyplot as plt
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from baselines.experiment.overrides import ROOT
from baselines.reports.names import method_style
from baselines.reproduce import overview, paper_tables


def test_every_paper_has_a_colour_of_its_own() -> None:
    styles = [method_style(paper) for paper in paper_tables.papers()]
    colours = [style[0] for style in styles if style]
    assert len(set(colours)) == len(paper_tables.papers())


@pytest.mark.slow
def test_every_paper_has_a_row_and_its_texts_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[Figure] = []
    monkeypatch.setattr(plt, "close", kept.append)
    for target in overview.draw_overviews(paper_tables.papers(), tmp_path):
        data = overview.read_data(target)
        assert list(data["gains"]) == list(data["verdicts"]) == paper_tables.papers()
        assert {row["ratio"] is None for row in data["gains"]["fedexp"]} == {False}
    assert len(kept) == 2
    for figure in kept:
        _check_texts(figure)


def test_a_phone_shows_letters_as_large_as_a_page_does() -> None:
    """A phone is 390 pixels wide, of which a page leaves its figures 358: at least 10 for a letter's height."""
    figure = overview.draw_narrow(overview.read_data(ROOT / "docs" / "overview-narrow.png"))
    per_inch = 358 / figure.get_size_inches()[0]
    texts = [one for one in figure.findobj(Text) if one.get_text().strip()]
    assert len(texts) > 30
    assert min(one.get_fontsize() for one in texts) / 72 * per_inch >= 10
    plt.close(figure)


def _check_texts(figure: Figure) -> None:
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    texts = [one for one in figure.findobj(Text) if one.get_visible() and one.get_text().strip()]
    for axis in (one for both in figure.axes for one in (both.xaxis, both.yaxis)):
        low, high = sorted(axis.get_view_interval())
        ticks = zip(axis.get_majorticklocs(), axis.get_majorticklabels(), strict=True)
        beyond = [label for place, label in ticks if not low <= place <= high]  # is not drawn
        texts = [one for one in texts if one not in beyond]
    boxes = {f"{n} {text.get_text()}": text.get_window_extent() for n, text in enumerate(texts)}
    whole = figure.bbox.padded(1)
    assert [name for name, box in boxes.items() if not (box.width and whole.contains(box.x0, box.y0))] == []
    assert [name for name, box in boxes.items() if not whole.contains(box.x1, box.y1)] == []
    pairs = combinations(boxes.items(), 2)
    assert [(a, b) for (a, one), (b, other) in pairs if one.padded(-1).overlaps(other.padded(-1))] == []
