"""What compare's tables say, and how they look on narrow terminals."""

from io import StringIO

import pandas as pd
from rich.console import Console

from baselines.reports.statistics import format_pairs
from baselines.reports.tables import SPREAD, Column, print_table, summarise, table_title
from helpers.runs import METRICS


def test_names_without_room_are_numbered_and_no_number_is_lost() -> None:
    names = [f"client.optimizer.lr=0.{digit}, partitioner.concentration=0.{digit}" for digit in "123"]
    rows = pd.DataFrame([(1, "test", "global", "accuracy", 0.5, 0)], columns=METRICS)
    table = summarise(pd.concat(rows.assign(setting=name, run=name) for name in names))
    out = {}
    for width in (60, 200):
        console = Console(width=width, file=StringIO())
        print_table(table, console, SPREAD)
        out[width] = console.file.getvalue()  # type: ignore[attr-defined]
        assert out[width].count("50.0 %") == 6
        assert all(name in out[width] for name in names)
    assert f"  3  {names[2]}" in out[60]
    assert "  3  " not in out[200]


def test_columns_without_room_come_in_a_table_of_their_own() -> None:
    """Nothing is wrapped or cut at 80 columns, whatever was measured."""
    names = [f"client.optimizer.lr=0.{digit}, partitioner.concentration=0.{digit}" for digit in "123"]
    headings = [f"last metric {letter}" for letter in "abcdefgh"]
    table = pd.DataFrame({"setting": names} | dict.fromkeys(headings, "0.123 ± 0.0456"))
    console = Console(width=80, file=StringIO())
    print_table(table, console, SPREAD)
    out = console.file.getvalue()  # type: ignore[attr-defined]
    assert out.count("0.123 ± 0.0456") == len(names) * len(headings)
    assert all(out.count(heading) == 1 for heading in headings)
    assert max(map(len, out.splitlines())) <= 80


def test_the_best_reaches_a_target_in_most_of_its_runs() -> None:
    rows = [("lucky", 2.0), ("lucky", float("nan")), ("steady", 4.0), ("steady", 6.0), ("slow", 9.0)]
    frame = pd.DataFrame(rows, columns=["setting", "value"])
    column = Column("rounds to 0.9", frame, lower=True, of_reached=True)
    assert column.best() == column.text("steady") == "5.00 ± 1.41"


def test_differences_of_shares_are_percentage_points() -> None:
    row = {
        "setting": "b",
        "baseline": "a",
        "seeds": 3,
        "mean": -0.02,
        "low": -0.05,
        "high": 0.01,
        "p": 0.1,
        "p_holm": 0.1,
    }
    printed = format_pairs(pd.DataFrame([row | {"p": 0.1, "p_holm": 0.1}]), percent=True).iloc[0]
    assert (printed["difference"], printed["95 % interval"]) == ("-2.00 points", "-5.00 to +1.00 points")


def test_a_summary_has_the_columns_that_something_was_measured_for() -> None:
    values = [("test", "loss", 0.5), ("test", "accuracy", 0.875), ("node-test", "accuracy", 0.25)]
    measured = [(1, split, "global", metric, value, 0) for split, metric, value in values]
    rows = pd.DataFrame(measured, columns=METRICS)
    rows = rows.assign(setting="all", run="r")
    table = summarise(rows)
    assert list(table["node accuracy"]) == ["25.0 %"]
    losses = rows[rows.metric == "loss"]
    assert list(summarise(losses)) == ["setting", "seeds", "rounds", "last loss"]
    mixed = summarise(pd.concat([rows, losses.assign(setting="loss alone")]))
    assert list(mixed["last accuracy"])[1] == "-"


def test_a_table_says_by_whose_test_data_it_is() -> None:
    splits = ["test", "node-test", "validation"]
    frame = pd.DataFrame([(1, split, "global", "accuracy", 0.5, 0) for split in splits], columns=METRICS)
    assert table_title(frame) == "test set, mean ± std over seeds"
    assert table_title(frame[1:]) == "the nodes' own test data, mean ± std over seeds"
    assert table_title(frame, ("validation/accuracy",)) == "mean ± std over seeds"
    assert table_title(frame, ("accuracy", "node-test/accuracy")) == "mean ± std over seeds"
