"""A paper's page: its generated parts are the tables', and its prose is short and repeats no table."""

import re
from pathlib import Path

import pytest

from baselines.reproduce import page, paper_tables
from baselines.reproduce.page import write_pages

TABLES = """\
table1:
  title: "Table 1, accuracy (%)"
  experiment: fedexp/common
  metric: accuracy
  reduction: best
  scale: 100
  seeds: 2
  columns: { num_nodes=9: nine nodes }
  readings: [{ where: { method: fedavg }, difference: 4 }]
  findings:
    - { text: FedExP beats FedAvg, column: method, better: fedexp, worse: fedavg }
  keys:
    dataset: { digits: dataset=digits }
    rate: { 0.1: client.optimizer.lr=0.1, 0.2: client.optimizer.lr=0.2 }
    method: { fedavg: strategy=fedavg, fedexp: strategy=fedexp }
table1_text:
  title: "Table 1, read otherwise"
  beside: { table: table1, heading: read otherwise, where: { rate: 0.2 }, values: { start: [own] }, difference: 7 }
  experiment: fedexp/common
  metric: accuracy
  reduction: best
  scale: 100
  keys:
    method: { fedavg: strategy=fedavg, fedexp: strategy=fedexp }
    start: { one: num_nodes=3, own: num_nodes=4 }
figure1:
  title: Figure 1, test loss
  experiment: fedexp/common
  metric: loss
  reduction: last
  keys: { method: { fedavg: strategy=fedavg } }
"""
PRINTED = """\
dataset,rate,method,paper_mean,paper_std
digits,0.2,fedexp,91.5,0.5
digits,0.2,fedavg,90.5,
digits,0.1,fedavg,,
"""
OURS = """\
dataset,rate,method,seed,value,rounds,changes,config,seconds,device
digits,0.2,fedexp,0,91,4,,x,1800,cpu
digits,0.2,fedexp,1,94,4,,x,5400,cpu
digits,0.2,fedavg,0,90,4,,x,3600,cpu
digits,0.2,fedavg,0,70,4,num_nodes=9,y,3600,cpu
"""
BESIDE = """\
method,start,seed,value,rounds,changes,config
fedexp,own,0,81,4,,x
fedexp,own,1,83,4,,x
fedexp,one,0,50,4,,x
"""
LOSSES = """\
method,seed,value,rounds,changes,config
fedavg,0,0.00012345,4,rounds=4,x
"""


@pytest.fixture
def tiny(papers: Path) -> Path:
    """Return the page of the paper ``tiny``, whose tables are made by hand."""
    folder = papers / "tiny"
    (folder / "ours").mkdir()
    (folder / "tables.yaml").write_text(TABLES)
    (folder / "tables" / "table1.csv").write_text(PRINTED)
    for name, rows in (("table1", OURS), ("table1_text", BESIDE), ("figure1", LOSSES)):
        (folder / "ours" / f"{name}.csv").write_text(rows)
    (folder / "ours" / "table1.png").write_bytes(b"")
    return folder / "README.md"


def test_a_table_has_a_row_for_each_cell_that_was_run_and_other_readings_as_columns(tiny: Path) -> None:
    assert page.page_tables("tiny").splitlines() == [
        "### Table 1, accuracy (%)",
        "",
        "Digits, rate 0.2. [Every cell](ours/table1.md).",
        "",
        "| method | paper | ours | difference | seeds | nine nodes | read otherwise: a node's own | see |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
        "| FedExP | 91.50 ± 0.50 | 92.50 ± 2.12 | +1.00 | 2 |  | 82.00 ± 1.41 (2) | 7 |",
        "| FedAvg | 90.50 | 90.00 | -0.50 | 1 | 70.00 |  | 4 |",
        "",
        "![Table 1, accuracy (%)](ours/table1.png)",
        "",
        "### Figure 1, test loss",
        "",
        "† Smaller setting: `rounds=4`. [Every cell](ours/figure1.md).",
        "",
        "| method | ours † | seeds |",
        "| --- | --- | --- |",
        "| FedAvg | 0.000123 | 1 |",
    ]


def test_of_many_rows_the_last_keys_values_stand_side_by_side(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "MAX_ROWS", 2)
    with (tiny.parent / "ours" / "table1.csv").open("a") as table:
        table.write("digits,0.1,fedavg,0,80,4,,x,3600,cpu\n")
    rows = [line for line in page.page_tables("tiny").splitlines() if line.startswith("| 0.")]
    assert rows == [
        "| 0.2 | 91.50 ± 0.50 | 92.50 ± 2.12 | +1.00 | 90.50 | 90.00 | -0.50 | 70.00 | 82.00 ± 1.41 (2) | 2, 1 "
        "| 7, 4 |",
        "| 0.1 |  |  |  |  | 80.00 |  |  |  | 1 | 4 |",
    ]


def test_what_was_not_run_says_what_it_would_take(tiny: Path) -> None:
    rows = page.page_missing("tiny").splitlines()[2:]
    command = "`python -m baselines.reproduce tiny"
    assert rows == [
        f"| Table 1, accuracy (%) | 1 of 3 | 2 runs, about 2 h (cpu) | {command} table1` |",
        f"| Table 1, read otherwise | 2 of 4 | 2 runs | {command} table1_text` |",
        f"| Figure 1, test loss | 1 of 1 | 1 run | {command} figure1` |",
    ]


def test_whoever_writes_a_table_renews_the_page(tiny: Path) -> None:
    marks = "<!-- {}: generated -->\nold\n<!-- end -->\n"
    tiny.write_text("# Tiny\n" + "".join(map(marks.format, ("claims", "tables", "missing"))))
    write_pages(["tiny"])
    text = tiny.read_text()
    assert "old" not in text
    assert page.page_tables("tiny") in text
    assert page.page_missing("tiny") in text


@pytest.mark.parametrize("paper", paper_tables.papers())
def test_the_pages_hold_what_the_tables_say(paper: str) -> None:
    """They are generated: `python -m baselines.reproduce PAPER TABLE --collect-only` renews them."""
    text = (paper_tables.PAPERS / paper / "README.md").read_text(encoding="utf-8")
    for part, content in (("tables", page.page_tables), ("missing", page.page_missing)):
        match = re.search(rf"<!-- {part}: generated -->\n(.*?)\n<!-- end -->", text, re.S)
        assert match, part
        assert match[1] == content(paper)


def prose(paper: str) -> str:
    """Return what a page says outside its marks, tables and code."""
    text = (paper_tables.PAPERS / paper / "README.md").read_text(encoding="utf-8")
    text = re.sub(r"<!-- \w+: generated -->.*?<!-- end -->", "", text, flags=re.S)
    text = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    return "\n".join(line for line in text.splitlines() if not line.startswith("|"))


@pytest.mark.parametrize("paper", paper_tables.papers())
def test_the_prose_of_a_page_is_short(paper: str) -> None:
    text = prose(paper)
    assert len(text.split()) <= 1_300
    differences = re.findall(r"^\d+\. .*?(?=^\d+\. |^\S|\Z)", text, flags=re.M | re.S)
    assert len(differences) > 8
    assert [one for one in differences if len(one.strip().splitlines()) > 2] == []
    numbers = [int(one.split(".")[0]) for one in differences]
    assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize("paper", paper_tables.papers())
def test_a_difference_that_a_table_points_to_is_on_the_page(paper: str) -> None:
    last = max(map(int, re.findall(r"^(\d+)\. ", prose(paper), flags=re.M)))
    named = [
        reading["difference"]
        for table in paper_tables.tables(paper).values()
        for reading in (*table.readings, *[table.beside] * ("difference" in table.beside))
    ]
    assert named
    assert all(1 <= number <= last for number in named)


@pytest.mark.parametrize("paper", paper_tables.papers())
def test_no_sentence_has_a_number_that_a_table_has(paper: str) -> None:
    text = (paper_tables.PAPERS / paper / "README.md").read_text(encoding="utf-8")
    tables = "\n".join(re.findall(r"<!-- tables: generated -->.*?<!-- end -->", text, flags=re.S))
    numbers = set(re.findall(r"\b\d\d\.\d\d\b", tables)) | set(re.findall(r"\b[\d.]+e-\d\d\b", tables))
    assert len(numbers) > 10
    assert [number for number in numbers if number in prose(paper)] == []


@pytest.mark.parametrize("paper", paper_tables.papers())
def test_no_sentence_has_more_than_three_numbers(paper: str) -> None:
    named = r"\b(?:tables?|figures?|sections?|differences?|eq\.|Algorithms?|lines?) [\d.]+(?:(?:,| to| and) [\d.]+)*"
    text = re.sub(named, "", re.sub(r"`[^`]*`", "", prose(paper)))
    sentences = re.split(r"(?<=[.!?])\s+|\n\n|\n\* ", text)
    assert [one for one in sentences if len(re.findall(r"(?<![\w.,])\d[\d,.]*", one)) > 3] == []
    assert [one for one in sentences if len(one.split()) > 40] == []
