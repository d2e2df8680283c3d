"""One name, one colour and one dash per method, in every table and figure."""

import pandas as pd
import pytest

from baselines.experiment.overrides import ROOT
from baselines.reports import html
from baselines.reports.curves import Drawing
from baselines.reports.names import (
    COLOURS,
    DASHES,
    _table,
    cell_name,
    line_styles,
    method_style,
    setting_names,
)
from baselines.reproduce import paper_tables


def test_no_two_methods_look_the_same() -> None:
    methods = _table()["methods"]
    looks = {(one["colour"], one["dash"]) for one in methods.values() if "like" not in one}
    assert len(looks) == sum("like" not in one for one in methods.values())
    assert all(colour in COLOURS and dash in DASHES for colour, dash in looks)
    assert {one["like"] for one in methods.values() if "like" in one} <= methods.keys()


def test_every_strategy_and_every_papers_method_has_a_name() -> None:
    strategies = {path.stem for path in (ROOT / "conf" / "strategy").glob("*.yaml")} - {"base"}
    printed = {
        value
        for paper in paper_tables.papers()
        for table in paper_tables.tables(paper).values()
        for column in ("method", "aggregation", "grouping")
        for value in table.keys.get(column, ())
    }
    assert strategies | printed <= _table()["methods"].keys()


def test_a_method_keeps_its_line_whatever_stands_beside_it() -> None:
    alone, beside = line_styles(["FedExP"]), line_styles(["FedAvg", "lr=0.1", "FedExP"])
    assert alone[0]["color"] == beside[2]["color"] == COLOURS["vermillion"]
    assert alone[0]["linestyle"] == beside[2]["linestyle"] == "-"
    many = [f"fedavg, lr={rate}" for rate in range(30)]
    styles = [(style["color"], str(style["linestyle"]), style["marker"]) for style in line_styles(many)]
    assert len(set(styles)) == 30
    assert styles[0][:2] == (COLOURS["black"], "-")


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("fedavg", "FedAvg"),
        ("fedadam, mask=agreement", "FedAdam, gradient mask"),
        ("fedavg, client.optimizer.lr=0.1", "FedAvg, client.optimizer.lr=0.1"),
        ("mine", "mine"),
        ("mask=none", "no mask"),
    ],
)
def test_settings_in_display_names(label: str, name: str) -> None:
    assert setting_names([label]) == {label: name}


def test_two_settings_never_get_one_name() -> None:
    assert setting_names(["fedavg", "FedAvg"]) == {"fedavg": "fedavg", "FedAvg": "FedAvg"}


def test_a_cell_in_words() -> None:
    keys = {"dataset": "fmnist", "partition": "dominant_labels", "num_nodes": "50", "tau": "0.4"}
    assert cell_name(keys) == "FashionMNIST, dominant labels, 50 nodes, tau 0.4"


def test_the_page_for_a_browser_has_the_same_colours() -> None:
    rows = [("FedExP", 0, "a", r, "test", "global", "accuracy", r / 4) for r in (1, 2)]
    columns = ["setting", "seed", "run", "round", "split", "model", "metric", "value"]
    (figure,) = html.plot_curves(
        pd.DataFrame(rows, columns=columns), Drawing(metrics=("accuracy",))
    ).values()
    (trace,) = figure.data
    style = method_style("fedexp")
    assert style is not None
    assert (trace.line.color, trace.line.dash) == (COLOURS[style[0]], style[1])
