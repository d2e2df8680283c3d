"""A model's layers as a table, beside the figures that a paper prints."""

import csv
from pathlib import Path

from rich import box
from rich.table import Table

from .model_cost import Layer, Seconds

PRINTED = Path(__file__).parents[1] / "papers" / "selective" / "tables"
LAYERS, TIMES = "tables4_1_4_3_4_5.csv", "tables4_2_4_4.csv"
ROUND = 13_333  # examples of a node there ("13333 images", chapter 4)


def table(layers: list[Layer], title: str) -> Table:
    """Return layers, parameters and multiply-accumulates per example."""
    out = _empty(title, ["layer", "kind", "output"], ["parameters", "MACs forward", "MACs backward"])
    for layer in layers:
        numbers = (layer.parameters, layer.forward, layer.backward)
        out.add_row(layer.name, layer.kind, "x".join(map(str, layer.output)), *map(_grouped, numbers))
    out.add_section()
    sums = (
        sum(layer.parameters for layer in layers),
        sum(layer.forward for layer in layers),
        sum(layer.backward for layer in layers),
    )
    out.add_row("all", "", "", *map(_grouped, sums))
    return out


def printed(name: str, model: str) -> list[dict[str, str]]:
    """Return the rows that Liu (2019, chapter 4) prints for a model, by its name in ``conf/model``."""
    if not (PRINTED / name).exists():  # a bundle without the papers' tables
        return []
    with open(PRINTED / name) as file:
        rows = [row for row in csv.DictReader(file) if row["model"] == model]
    return [row for row in rows if row.get("layer") != "Input"]


def beside(layers: list[Layer], rows: list[dict[str, str]]) -> Table:
    """Put the thesis's rows beside our layers with weights, in order."""
    title = f"printed in table {rows[0]['table']} of Liu (2019), and ours"
    out = _empty(title, [], ["printed", "parameters", "ours", "MACs", "ours (forward)", "our layer"])
    weighted = [layer for layer in layers if layer.forward]
    for number, row in enumerate(rows):
        own = ("-", "-", "-")
        if number < len(weighted):
            layer = weighted[number]
            own = (_grouped(layer.parameters), _grouped(layer.forward), layer.name)
        parameters, macs = (_grouped(int(row[key])) for key in ("parameters", "macs"))
        out.add_row(row["layer"], parameters, own[0], macs, own[1], own[2])
    out.add_section()
    parameters, macs = (_grouped(sum(int(row[key]) for row in rows)) for key in ("parameters", "macs"))
    ours = (sum(layer.parameters for layer in layers), sum(layer.forward for layer in layers))
    out.add_row("all", parameters, _grouped(ours[0]), macs, _grouped(ours[1]), "")
    return out


def times_beside(step: Seconds, size: int, rows: list[dict[str, str]]) -> Table:
    """Put the seconds of a round on a Raspberry Pi 4 beside ours, from a step of ``size`` examples.

    Ours are those of the steps alone: no evaluation, no messages.
    """
    title = f"table {rows[0]['table']} of Liu (2019), {ROUND:,} examples"
    out = _empty(title, ["seconds"], ["printed (Raspberry Pi 4)", "ours (here)"])
    for row in rows:
        out.add_row(row["type"], row["seconds"], f"{getattr(step, row['type']) * ROUND / size:.3g}")
    return out


def _empty(title: str, words: list[str], numbers: list[str]) -> Table:
    out = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in words:
        out.add_column(heading, no_wrap=True)
    for heading in numbers:
        out.add_column(heading, justify="right", no_wrap=True)
    return out


def _grouped(number: int) -> str:
    return f"{number:,}"
