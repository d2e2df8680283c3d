"""Summary: a line for each setting, mean ± standard deviation over its seeds."""

import pandas as pd
from rich import box
from rich.console import Console
from rich.table import Table

from baselines.engine.metrics import OWN_GROUP


def summarise(curves: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """Return a row of texts for each setting; a column that no setting has anything in is left out.

    ``curves`` maps a setting to the rows of metrics.csv of all its runs, with a column ``seed``. "node
    accuracy" is the last one on the nodes' own test data, the other metrics are the server's test set's.
    """
    rows = []
    for label, frame in curves.items():
        reached = frame.groupby("seed")["round"].max()
        accuracy, loss = measured(frame, "accuracy"), measured(frame, "loss")
        on_nodes = measured(frame, "accuracy", split="node-test")
        rows.append(
            {
                "setting": label,
                "seeds": str(frame.seed.nunique()),
                "rounds": " to ".join(map(str, sorted({min(reached), max(reached)}))),
                "last accuracy": _spread(accuracy.groupby("seed").tail(1) * 100, ".1f", " %"),
                "best accuracy": _spread(accuracy.groupby("seed").max() * 100, ".1f", " %"),
                "last loss": _spread(loss.groupby("seed").tail(1), ".3g", ""),
                "node accuracy": _spread(on_nodes.groupby("seed").tail(1) * 100, ".1f", " %"),
            }
        )
    table = pd.DataFrame(rows)
    return table.loc[:, (table != "-").any()]


def measured(frame: pd.DataFrame, metric: str, split: str = "test") -> "pd.Series[float]":
    """Return a metric by seed and round; empty where there is none."""
    chosen = frame[(frame.split == split) & (frame.metric == metric)]
    return over_nodes(chosen, ["seed", "round"])


def over_nodes(rows: pd.DataFrame, by: list[str]) -> "pd.Series[float]":
    """Return a metric's mean over the nodes, as the run has written it; else over the models there are.

    What is no number in one model is none in the mean.
    """
    by_model = rows.groupby(by).value
    mean = by_model.mean().where(by_model.count() == by_model.size())
    return rows[rows.model == OWN_GROUP].groupby(by).value.mean().combine_first(mean)


def markdown(table: pd.DataFrame) -> str:
    """Return the table in Markdown."""
    lines = [list(map(str, table)), ["---"] * len(table.columns), *table.to_numpy().tolist()]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def show(table: pd.DataFrame, console: Console) -> None:
    """Print the table; where the settings' names leave it no room, they are numbered and follow below."""
    if width_of(_terminal(table), console) <= console.width:
        console.print(_terminal(table))
        return
    numbers = [str(place + 1) for place in range(len(table))]
    console.print(_terminal(table.assign(setting=numbers)))
    for number, setting in zip(numbers, table.setting, strict=True):
        console.print(f"{number:>3}  {setting}", soft_wrap=True)


def _terminal(table: pd.DataFrame) -> Table:
    out = Table(title="test set, mean ± std over seeds", box=box.SIMPLE_HEAD)
    for heading in table:
        number = heading not in ("setting", "seeds", "rounds")
        out.add_column(str(heading), justify="right" if number else "left")
    for row in table.to_numpy().tolist():
        out.add_row(*row)
    return out


def width_of(table: Table, console: Console) -> int:
    """Return how wide it would be with nothing wrapped."""
    return console.measure(table, options=console.options.update(width=10_000)).maximum


def _spread(values: "pd.Series[float]", form: str, unit: str) -> str:
    if values.empty:
        return "-"
    spread = f" ± {values.std():{form}}" if len(values) > 1 else ""
    return f"{values.mean(skipna=False):{form}}{spread}{unit}"
