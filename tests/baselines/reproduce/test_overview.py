"""Without a table the command says which there are."""

from pathlib import Path

import pytest

from baselines.reproduce import paper_tables
from baselines.reproduce.__main__ import main

ROWS = """\
rate,method,seed,value,rounds,changes,config
0.2,fedexp,0,91,4,,x
0.2,fedexp,1,93,4,,x
0.1,fedavg,0,80,2,rounds=2,y
"""


@pytest.mark.parametrize("arguments", [[], ["tiny"]])
def test_tables_and_how_much_of_them_was_run(
    arguments: list[str], papers: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (papers / "tiny" / "ours").mkdir()
    (papers / "tiny" / "ours" / "table1.csv").write_text(ROWS)
    assert main(arguments) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["paper", "table", "cells", "run", "not", "the", "paper's", "setting"] in lines
    assert ["tiny", "table1", "3", "2", "1"] in lines
    assert ["tiny", "figure1", "2", "0", "0"] in lines
    assert ["all", "5", "2", "1"] in lines


def test_an_unknown_paper_is_one_line(papers: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["huge"]) == 2
    assert capsys.readouterr().err == "error: no paper 'huge': expected one of tiny\n"


@pytest.mark.slow
def test_names_are_whole_on_a_narrow_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main([]) == 0
    words = capsys.readouterr().out.split()
    assert all(name in words for paper in paper_tables.papers() for name in paper_tables.tables(paper))
