"""A paper's tables as one page."""

from pathlib import Path

import pytest

from baselines.reproduce import __main__ as reproduce
from baselines.reproduce import paper_tables


def test_every_table_that_was_made_is_on_it(tmp_path: Path) -> None:
    assert reproduce.main(["weight_erosion", "--html", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    made = [*(paper_tables.PAPERS / "weight_erosion" / "ours").glob("*.md")]
    assert made
    assert page.count("<h2>weight_erosion, ") == len(made)
    assert page.count('<table class="sortable">') >= len(made)
    assert page.count("data:image/png;base64,") == len(
        [file for file in made if file.with_suffix(".png").exists()]
    )
    assert 'src="http' not in page
    assert "<script src" not in page


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nobody", "--html", "x.html"], "nobody"),
        (["gma", "table4_4", "--html", "x.html"], "the page is of a whole paper; leave table4_4 out"),
    ],
)
def test_a_mistake_has_one_line(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert reproduce.main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
    assert not (tmp_path / "x.html").exists()
