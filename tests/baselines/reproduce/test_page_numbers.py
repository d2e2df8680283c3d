"""The numbers in the pages' prose are those of the tables; each form by a table worked out by hand."""

from pathlib import Path

import pytest

from baselines.errors import UserError
from baselines.reproduce import paper_tables
from baselines.reproduce.__main__ import main
from baselines.reproduce.claims import write_pages
from baselines.reproduce.quoted import (
    MARKED,
    Quoted,
    Unit,
    apart,
    evaluate_expression,
    order,
    renew_page,
    renew_text,
    span,
)
from baselines.reproduce.results import Ours

TABLE = """\
rate,method,seed,value,rounds,changes,config
0.2,fedexp,0,91,4,,x
0.2,fedexp,1,94,4,,x
0.2,fedavg,0,90,4,,x
0.2,fedavg,1,90.5,4,,x
0.2,fedavg,2,80,4,,x
0.2,fedexp,0,70,2,rounds=2,y
0.2,fedavg,0,71,2,rounds=2,y
0.2,fedavg,0,60,2,rounds=2 num_nodes=9,y
0.1,fedavg,0,50,2,rounds=2,y
"""
CURVES = """\
rate,method,seed,changes,round,value
0.2,fedexp,0,,1,31
0.2,fedexp,0,,2,41
0.2,fedexp,1,,2,43
0.2,fedavg,0,,2,40
"""
LOSSES = """\
method,seed,value,rounds,changes,config
fedavg,0,0.00012345,100,,x
bad,0,0.00024690,100,,x
"""
POINTS = Unit(1, ".1f", points=True, signed=True)


@pytest.fixture
def page(papers: Path) -> Path:
    """Return where the page of the paper ``tiny`` goes, whose tables are made by hand."""
    ours = papers / "tiny" / "ours"
    ours.mkdir()
    (ours / "table1.csv").write_text(TABLE)
    (ours / "table1_curves.csv").write_text(CURVES)
    (ours / "figure1.csv").write_text(LOSSES)
    return papers / "tiny" / "README.md"


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("table1 0.2 fedexp", "92.50"),
        ("table1 rate=0.2 method=fedexp :.1f", "92.5"),
        ("table1 0.2 fedavg seed=2", "80.00"),
        ("table1 0.2 fedexp round=2", "42.00"),
        ("paper table1 0.2 fedexp", "91.50"),
        ("figure1 fedavg", "0.000123"),
        ("spread table1 0.2 fedexp", "92.50 ± 2.12"),  # 3 / sqrt(2)
        ("spread table1 0.1 fedavg", "50.00"),
        ("seeds table1 0.1", "1 seed"),
        ("seeds table1 0.2 fedexp", "2 seeds"),
        ("seeds table1", "1 to 3 seeds"),
        # differences over the seeds that both have: 91 - 90 and 94 - 90.5
        ("table1 0.2 fedexp - fedavg", "2.25 points above"),
        ("table1 0.2 fedavg - fedexp", "2.25 points below"),
        ("table1 0.2 fedexp - fedexp", "level with"),
        ("table1 0.2 fedexp round=2 - fedavg", "1.00 points above"),
        ("table1 0.2 fedexp - paper", "1.00 points above"),
        ("paper table1 0.2 fedavg - fedexp", "1.00 points below"),
        ("table1 0.2 fedexp / fedavg :.4f", "1.0249"),  # (91 / 90 + 94 / 90.5) / 2
        ("figure1 bad / fedavg", "2"),
        # other settings: the one with the fewest changes of those that have these
        ("table1 0.2 fedavg rounds=2", "71.00"),
        ("table1 0.2 fedavg num_nodes=9", "60.00"),
        ("table1 0.2 fedexp rounds=2 - fedavg", "1.00 points below"),
        ("table1 0.2 fedexp - fedavg num_nodes=9", "31.00 points above"),
        # several cells; FedAvg's mean is 86.83, 3.67 below the printed 90.5
        ("range table1", "50.00 to 92.50"),
        ("range table1 0.2 - paper", "3.67 points below to 1.00 points above"),
        ("average table1 0.2 - paper", "1.33 points below"),
        ("deviations table1 0.2", "2.12 to 5.92"),
        ("cells table1", "3 of 3"),
        ("cells table1 num_nodes=9", "1 of 3"),
        ("above table1 0.2 - paper", "1 of 2"),
        ("within=1 table1 0.2 - paper", "1 of 2"),
        ("order table1 0.2 fedexp - fedavg", "1 of 1"),
        ("apart table1 0.2 fedexp - fedavg", "0 of 1"),  # 2.25 ± 12.7 * 1.25
    ],
)
def test_what_an_expression_says(expression: str, said: str, page: Path) -> None:
    assert evaluate_expression("tiny", expression) == said


def one(name: str, paper: float | None, *ours: float) -> Quoted:
    return Quoted(Ours(dict(enumerate(ours)), "") if ours else None, paper, name)


def test_a_range_of_differences_on_one_side_begins_at_the_nearest_to_zero() -> None:
    below, above = [one("a", None, -3.0), one("b", None, -0.01)], [one("a", None, 2.0), one("b", None, 0.5)]
    assert span(below, POINTS) == "0.0 to 3.0 points below"
    assert span(above, POINTS) == "0.5 to 2.0 points above"
    assert span([*above[:1], one("b", None)], POINTS) == "2.0 points above"


def test_those_against_the_papers_order_are_named() -> None:
    ours = {"a": 2.0, "b": -2.0, "c": 0.01}
    found = [one(name, 1.0, value) for name, value in ours.items()]
    found += [one("not printed", None, 1.0), one("not run", 1.0)]
    assert order(found, POINTS) == "1 of 3 (not b, c)"


def test_those_apart_from_zero_are_named_where_they_are_some() -> None:
    found = [one("a", None, 1.0, 1.1, 0.9), one("b", None, 1.0, -1.1), one("c", None, -5.0)]
    assert apart([*found, one("d", None, -2.0, -2.1)], POINTS) == "2 of 4 (a, d)"
    assert apart(found[:1], POINTS) == "1 of 1"
    assert apart(found[1:], POINTS) == "0 of 2"


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("table9 0.2", "no table 'table9' of tiny: expected one of table1, figure1"),
        ("range", "it names no table"),
        ("table1 0.3", "0.3 is of no column of table1: expected COLUMN=VALUE, columns are rate, method"),
        ("table1 method=fedprox", "no cell of table1 has all of these"),
        ("table1 0.2", "it names 2 cells; name one, or say range or average"),
        ("table1 0.1 fedavg - fedexp", "there is no cell 0.1 fedexp"),
        ("table1 0.2 fedavg num_nodes=8", "it has not been run, or not with the same seeds and changes"),
        ("table1 0.2 fedavg - 0.1", "it has not been run, or not with the same seeds and changes"),
        ("table1 0.2 fedexp round=3", "it has not been run, or not with the same seeds and changes"),
        ("table1 0.2 fedexp - fedavg seed=1", "round and seed are the same of both: name them before -"),
        ("table1 0.2 fedexp :q", "Unknown format code 'q' for object of type 'float'"),
    ],
)
def test_an_expression_that_says_nothing_is_one_line(expression: str, said: str, page: Path) -> None:
    text = f"x <!--= {expression} -->1<!--/-->\n"
    page.write_text(text)
    with pytest.raises(UserError) as error:
        renew_page(page, "tiny")
    assert str(error.value) == f"{page}: {expression}: {said}"
    assert page.read_text() == text


def test_two_numbers_that_fit_alike_are_refused(page: Path) -> None:
    with (page.parent / "ours" / "table1.csv").open("a") as table:
        table.write(
            "0.2,fedavg,0,61,2,rounds=2 num_nodes=8,y\n0.2,fedavg,0,61,2,momentum=1 num_nodes=8,y\n"
        )
    with pytest.raises(UserError, match="several numbers fit"):
        evaluate_expression("tiny", "table1 0.2 fedavg num_nodes=8")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x <!--= table1 0.2 fedexp -->1\n", "only one of its two comments"),
        ("x 1<!--/-->\n", "only one of its two comments"),
        ("x\n  <!--= table1 0.2 fedexp -->1<!--/-->\n", "a number begins a line"),
        ("* <!--= table1 0.2 fedexp -->1<!--/-->\n", "a number begins a line"),
    ],
)
def test_a_mark_that_markdown_would_take_otherwise_is_refused(text: str, said: str, page: Path) -> None:
    with pytest.raises(UserError, match=said):
        renew_text(text, "tiny")


@pytest.mark.exhaustive
@pytest.mark.parametrize("paper", paper_tables.papers())
def test_the_pages_numbers_are_those_of_the_tables(paper: str) -> None:
    """They are generated: `python -m baselines.reproduce PAPER TABLE --collect-only` renews them."""
    text = (paper_tables.PAPERS / paper / "README.md").read_text(encoding="utf-8")
    assert renew_text(text, paper) == text
    assert len(MARKED.findall(text)) > 8


def test_a_stale_number_is_found_and_renewed(page: Path) -> None:
    text = "FedExP is at <!--= table1 0.2 fedexp -->91.00<!--/--> %, FedAvg at 1.\n"
    assert renew_text(text, "tiny") == text.replace("91.00", "92.50")
    page.write_text(text)
    write_pages(["tiny"])
    assert page.read_text() == text.replace("91.00", "92.50")


def test_whoever_writes_a_table_renews_the_page(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page.write_text("FedExP is at <!--= table1 0.2 fedexp -->0<!--/--> %.\n")
    lines = TABLE.splitlines()
    packages = [",numpy,timm,torch", *[",1,1,1"] * (len(lines) - 1)]
    table = page.parent / "ours" / "table1.csv"
    table.with_name("table1_curves.csv").unlink()
    table.write_text("".join(f"{line}{more}\n" for line, more in zip(lines, packages, strict=True)))
    collecting = ["tiny", "table1", "--collect-only", "--output", str(page.parent / "runs")]
    assert main(collecting) == 0
    assert "-->92.50<!--/-->" in page.read_text()
    page.write_text("FedExP is at <!--= table1 0.2 fedprox -->0<!--/--> %.\n")
    capsys.readouterr()
    assert main(collecting) == 2
    assert capsys.readouterr().err.startswith(f"error: {page}: table1 0.2 fedprox: fedprox is of no column")
