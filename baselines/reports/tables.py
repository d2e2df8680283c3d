"""Summary: a line for each setting, mean ± standard deviation over its seeds."""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from math import floor, log10
from pathlib import Path

import pandas as pd
from rich import box
from rich.console import Console
from rich.table import Table

from baselines import results
from baselines.engine.metrics import is_lower_better
from baselines.errors import UserError

from .runs import Panel, choose, diverged, mean_of_all, unfinished

DATA = {"test": "test set, ", "node-test": "the nodes' own test data, "}
SPREAD = "mean ± std over seeds"
SIGNIFICANCE_MARK = " *"  # after a number: it differs significantly from the baseline's


@dataclass(frozen=True)
class Column:
    """A number of each setting.

    Parameters
    ----------
    heading : its heading
    rows : setting, seed and ``value``, NaN if a run has none
    lower : whether less is better
    percent : whether it is a share
    of_reached : whether NaN means that a run never reached the target, and only the others count
    diverged : settings with a diverged run, which are never the best
    marked : settings marked as significantly different from a baseline
    """

    heading: str
    rows: pd.DataFrame
    lower: bool = False
    percent: bool = False
    of_reached: bool = False
    diverged: frozenset[str] = frozenset()
    marked: frozenset[str] = frozenset()

    def marked_text(self, setting: str) -> str:
        """Return the text with its mark."""
        return self.text(setting) + SIGNIFICANCE_MARK * (setting in self.marked)

    def text(self, setting: str) -> str:
        """Return mean and deviation as text."""
        values = self.rows[self.rows.setting == setting].value
        if values.empty:
            return "-"
        if self.of_reached:
            return _format_reached(values)
        if setting in self.diverged and values.isna().any():
            return "diverged"
        scaled = values * 100 if self.percent else values
        return _spread(scaled, ".1f" if self.percent else ".3g", " %" if self.percent else "")

    def numbers(self) -> pd.DataFrame:
        """Return mean, std and the number of runs by setting, neither rounded nor scaled."""
        statistics = self.rows.groupby("setting").value.agg(["mean", "std", "count"])
        if not self.of_reached:
            statistics["mean"] = mean_of_all(self.rows, "setting")
            statistics["std"] = statistics["std"].where(statistics["mean"].notna())
        return statistics.add_prefix(f"{self.heading}, ")

    def best(self) -> str | None:
        """Return the text of the best setting; None if there are fewer than two.

        If some runs never reached the target, only settings that reached it most often compete.
        """
        by_setting = self.rows.groupby("setting").value
        means = self.numbers()[f"{self.heading}, mean"].dropna()
        means = means[~means.index.isin(self.diverged)]
        if len(means) < 2:
            return None
        if self.of_reached:
            share = by_setting.count() / by_setting.size()
            means = means[share[means.index] == share.max()]
        return self.text(str(means.idxmin() if self.lower else means.idxmax()))


def table_title(frame: pd.DataFrame, metrics: tuple[str, ...] = ()) -> str:
    """Return the title of a table of all settings, with the evaluation data if all columns share it."""
    splits = {panel.split for panel in choose(frame, metrics)}
    return DATA.get(" ".join(splits), "") + SPREAD


def summary_columns(
    frame: pd.DataFrame,
    metrics: tuple[str, ...] = (),
    target: float | None = None,
    lower: Collection[str] = (),
) -> list[Column]:
    """Return the columns of a summary; each metric's last and best value, a loss' best only on request.

    ``frame`` is that of :func:`baselines.results.load`. Without ``metrics``: everything measured on the
    test set, and the last accuracy on the nodes' own test data. ``target`` adds the rounds in which the
    first metric reaches it. For metrics in ``lower``, less is better even if their names do not say so.

    Raises
    ------
    UserError : for a metric that no run has, or a target without a metric
    """
    panels = choose(frame, metrics)
    on_nodes = Panel("node-test", "accuracy")
    own = [one for one in panels if metrics or one != on_nodes]  # it has a column below
    columns = [column for one in own for column in _columns(frame, one, bool(metrics), lower)]
    if not metrics and results.has(frame, on_nodes.metric, on_nodes.split):
        rows = results.last(frame, on_nodes.metric, on_nodes.split)
        columns.append(Column("node accuracy", rows, percent=True))
        columns += _over_sites(frame)
    if target is not None:
        if not panels:
            raise UserError(f"--rounds-to {target:g}: no run has a test metric to reach it")
        if panels[0].percent and target > 1:
            raise UserError(
                f"--rounds-to {target:g}: {panels[0].metric} is at most 1, as in {target / 100:g}"
            )
        rows = results.rounds_to(
            frame, panels[0].metric, target, panels[0].split, is_less_better(panels[0], lower)
        )
        name = "" if panels[0].metric == "accuracy" else f"{panels[0].metric} "
        columns.append(Column(f"rounds to {name}{target:g}", rows, lower=True, of_reached=True))
    lost = frozenset(frame.setting[frame.run.isin(diverged(frame))])
    return [replace(column, diverged=lost) for column in columns]


def _over_sites(frame: pd.DataFrame) -> list[Column]:
    """Return how the sites differ in the last round, if they have data of their own."""
    if not results.has(frame, "accuracy_lowest", "node-test"):
        return []
    parts = {part: results.last(frame, f"accuracy_{part}", "node-test") for part in ("lowest", "median")}
    gap = results.last(frame, "accuracy_highest", "node-test")
    gap["value"] -= parts["lowest"].value
    return [
        Column("worst site", parts["lowest"], percent=True),
        Column("median site", parts["median"], percent=True),
        Column("best minus worst", gap, lower=True, percent=True),
    ]


def is_less_better(panel: Panel, lower: Collection[str]) -> bool:
    """Say whether less is better, by the metric's name or by ``lower``."""
    named = panel.metric in lower or f"{panel.split}/{panel.metric}" in lower
    return named or is_lower_better(panel.metric)


def _columns(frame: pd.DataFrame, panel: Panel, is_requested: bool, lower: Collection[str]) -> list[Column]:
    metric, split, falls = panel.metric, panel.split, is_less_better(panel, lower)
    name = metric if split == "test" else f"{split} {metric}"
    columns = [Column(f"last {name}", results.last(frame, metric, split), falls, panel.percent)]
    if is_requested or metric != "loss":
        best = results.best(frame, metric, split, falls)
        columns.append(Column(f"best {name}", best, falls, panel.percent))
    return columns


def summarise(frame: pd.DataFrame, columns: list[Column] | None = None) -> pd.DataFrame:
    """Return a row of texts for each setting, without empty columns."""
    columns = summary_columns(frame) if columns is None else columns
    rows = []
    for label, own in frame.groupby("setting", sort=False):
        reached = own.groupby("seed")["round"].max()
        counts = {"not finished": len(unfinished(own.run.unique())), "diverged": len(diverged(own))}
        remark = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
        row = {
            "setting": str(label),
            "seeds": f"{own.seed.nunique()}" + (f" ({remark})" if remark else ""),
            "rounds": " to ".join(map(str, sorted({min(reached), max(reached)}))),
        }
        rows.append(row | {column.heading: column.marked_text(str(label)) for column in columns})
    table = pd.DataFrame(rows)
    return table.loc[:, (table != "-").any()]


def summary_numbers(frame: pd.DataFrame, columns: list[Column]) -> pd.DataFrame:
    """Return the summary's numbers unrounded, with the settings' values as columns, for a spreadsheet."""
    by_setting = frame.groupby("setting", sort=False)
    numbers = by_setting[results.settings(frame)].first()
    values = by_setting[list(numbers)].nunique(dropna=False)
    numbers = numbers.loc[:, values.max() == 1]  # without that of the panels
    numbers["seeds"] = frame.groupby("setting").seed.nunique()
    if lost := diverged(frame):
        numbers["diverged"] = frame[frame.run.isin(lost)].groupby("setting").seed.nunique()
        numbers["diverged"] = numbers["diverged"].fillna(0).astype(int)
    return numbers.join([column.numbers() for column in columns]).reset_index()


def _spread(values: "pd.Series[float]", form: str, unit: str) -> str:
    """Return mean and deviation with equally many decimals."""
    mean, spread = float(values.mean(skipna=False)), float(values.std(skipna=False))
    if len(values) == 1:
        return f"{mean:{form}}{unit}"
    form = _equal_decimals(mean, spread) if form == ".3g" else form
    return f"{mean:{form}} ± {spread:{form}}{unit}"


def _equal_decimals(mean: float, spread: float) -> str:
    """Return the format that gives the greater of two numbers three digits; .3g for tiny or huge ones."""
    greater = max(abs(mean), abs(spread))
    if not 1e-4 <= greater < 1e6:  # also zero, NaN and infinity
        return ".3g"
    return f".{max(0, 2 - floor(log10(greater)))}f"


def _format_reached(values: "pd.Series[float]") -> str:
    """Return the rounds of the runs that reached the target, and their number if not all did."""
    reached = values.dropna()
    if reached.empty:
        return "never"
    few = f" ({len(reached)} of {len(values)})" if len(reached) < len(values) else ""
    return _spread(reached, ".3g", "") + few


# Tables of texts on a terminal of any width.


def print_table(table: pd.DataFrame, console: Console, title: str) -> None:
    """Print the table; if the settings' names leave no room, number them and list them below.

    Columns that still do not fit follow in further tables.
    """
    if _fits(table, console, title):
        console.print(_terminal(table, title))
        return
    places = [str(place + 1) for place in range(len(table))]
    numbered = table.assign(setting=places)
    columns: list[str] = []
    for heading in map(str, list(table)[1:]):
        if columns and not _fits(numbered[["setting", *columns, heading]], console, ""):
            console.print(_terminal(numbered[["setting", *columns]], title))
            columns = []
        columns.append(heading)
    console.print(_terminal(numbered[["setting", *columns]], title))
    for place, setting in zip(places, table.setting, strict=True):
        console.print(f"{place:>3}  {setting}", soft_wrap=True)


def _fits(table: pd.DataFrame, console: Console, title: str) -> bool:
    return width_of(_terminal(table, title), console) <= console.width


def _terminal(table: pd.DataFrame, title: str) -> Table:
    out = Table(title=title, box=box.SIMPLE_HEAD)
    headings = list(table)
    words = {
        "setting",
        "seeds",
        "rounds",
        *headings[: headings.index("seeds") if "seeds" in headings else 0],
    }
    for heading in headings:
        number = heading not in words
        out.add_column(str(heading), justify="right" if number else "left")
    for row in table.to_numpy().tolist():
        out.add_row(*row)
    return out


def width_of(table: Table, console: Console) -> int:
    """Return a table's width without wrapping."""
    return console.measure(table, options=console.options.update(width=10_000)).maximum


# Tables for other programs: Markdown, LaTeX and CSV.


ESCAPES = {
    "\\": r"\textbackslash{}",
    **{sign: "\\" + sign for sign in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "<": "$<$",
    ">": "$>$",
}
MINUS = re.compile(r"(?<= )-(?= )|(?<![\w.-])-(?=\d)")  # a minus sign; other dashes are hyphens


def to_latex(table: pd.DataFrame, caption: str, label: str, columns: list[Column] | None = None) -> str:
    r"""Return a LaTeX table of texts for \usepackage{booktabs}; the best of each column is bold."""
    best = {column.heading: column.best() for column in columns or []}
    headings = [str(heading) for heading in table]
    rows = []
    for values in table.to_numpy().tolist():
        cells = [_tex_cell(text, best.get(heading)) for heading, text in zip(headings, values, strict=True)]
        rows.append("    " + " & ".join(cells) + r" \\")
    lines = [
        r"\begin{table}",
        r"  \centering",
        rf"  \caption{{{_tex(caption)}}}",
        rf"  \label{{tab:{label}}}",
        rf"  \begin{{tabular}}{{l{'r' * (len(headings) - 1)}}}",
        r"    \toprule",
        "    " + " & ".join(map(_tex, headings)) + r" \\",
        r"    \midrule",
        *rows,
        r"    \bottomrule",
        r"  \end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _tex_cell(text: str, best: str | None) -> str:
    plain = text.removesuffix(SIGNIFICANCE_MARK)
    cell = rf"\textbf{{{_tex(plain)}}}" if plain == best else _tex(plain)
    return cell + "$^{*}$" * (plain != text)


def write_text(target: Path, text: str) -> None:
    """Write a file, creating its folder."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")


def _tex(text: str) -> str:
    escaped = "".join(ESCAPES.get(sign, sign) for sign in text)
    return MINUS.sub("$-$", escaped)


# A table in Markdown.


def markdown_table(headings: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return a table of texts in Markdown, with every ``|`` in them escaped."""
    rows = [headings, ["---"] * len(headings), *lines]
    cells = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    return "".join(f"| {' | '.join(row)} |\n" for row in cells)
