"""The tables, figures and pages of the runs that baselines.compare is given."""

import argparse
import os
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from rich.console import Console

from baselines import results
from baselines.errors import UserError

from . import curves
from .names import setting_names
from .runs import choose, diverged, divergences, mean_of_all, remarks, tidy
from .statistics import format_pairs
from .tables import (
    Column,
    is_less_better,
    markdown_table,
    print_table,
    summarise,
    summary_columns,
    summary_numbers,
    table_title,
    to_latex,
    write_text,
)


def compare(options: argparse.Namespace) -> None:
    """Print the tables, draw the figure, and write what the command line asks for."""
    if options.figure:
        curves.check_name(options.figure)
    metrics = tuple(options.metric)
    frame, left_out = tidy(options.folders)
    everything = frame
    for name in options.lower:
        if name.rpartition("/")[2] not in set(frame.metric):
            raise UserError(f"--lower {name}: no run has measured it")
    if options.best is not None:
        frame = best(frame, options.best, metrics, options.lower)
    frame = with_display_names(renamed(frame, options.label))
    target = options.figure or _common_parent(frame) / "comparison.png"
    console = Console(width=None if sys.stdout.isatty() else 120, highlight=False, markup=False)
    columns = summary_columns(frame, metrics, options.rounds_to, options.lower)
    table = summarise(frame, columns)
    print_table(table, console, table_title(frame, metrics))
    tables = {"comparison": table}
    if options.paired:
        tables["paired"] = _paired(
            with_display_names(renamed(everything, options.label)), options.paired, metrics, console
        )
    drawing = curves.Drawing(metrics, options.x, options.width)
    drawn = curves.draw(frame, target, drawing)
    _write(tables, target, options, summary_numbers(frame, columns), columns)
    for line in (*divergences(everything), *remarks(map(Path, frame.run.unique()), left_out)):
        console.print(line, soft_wrap=True)
    if drawn:
        console.print(drawn)
    if drawn is not None:
        console.print(f"figure: {target}", soft_wrap=True)
    if options.html:
        from .html import write_page  # what it imports takes a second

        write_page(options.html, frame, tables, options.folders, drawing)
        console.print(f"page: {options.html}", soft_wrap=True)


def best(
    frame: pd.DataFrame, count: int, metrics: tuple[str, ...] = (), lower: Sequence[str] = ()
) -> pd.DataFrame:
    """Return the rows of the settings that are best at the first metric in the end, the best one first.

    A setting with a run that has diverged is none of them.

    Raises
    ------
    UserError : when no run has it, none is asked for, or all settings have diverged
    """
    if count < 1:
        raise UserError(f"--best {count} is out of range: expected a whole number above 0")
    if not (panels := choose(frame, metrics)):
        raise UserError("--best: no run has a test metric to be ordered by")
    panel = panels[0]
    lost = frame.setting[frame.run.isin(diverged(frame))]
    if (frame := frame[~frame.setting.isin(lost)]).empty:
        raise UserError("--best: each setting has a run that has diverged, and none is the best")
    ends = results.last(frame, panel.metric, panel.split)
    means = mean_of_all(ends, "setting").reindex(ends.setting.unique())
    ordered = means.sort_values(ascending=is_less_better(panel, lower), kind="stable")
    return pd.concat(frame[frame.setting == label] for label in ordered.index[:count])


def renamed(frame: pd.DataFrame, wishes: list[str]) -> pd.DataFrame:
    """Return the frame with settings called as ``OLD=NEW`` says: a label, a part of it, or a key.

    Raises
    ------
    UserError : for a name that no setting has, or one that two would have
    """
    labels = {label: label for label in frame.setting.unique()}
    for wish in wishes:
        old, equals, new = wish.rpartition("=")
        if not (old and equals and new):
            raise UserError(f"--label {wish}: expected OLD=NEW")
        changed = {label: _called(now, old, new) for label, now in labels.items()}
        if changed == labels:
            raise UserError(f"--label {wish}: no setting is called {old}; there are {'; '.join(labels)}")
        labels = changed
    if len(set(labels.values())) < len(labels):
        raise UserError("--label gives two settings the same name: choose others")
    return frame.assign(setting=frame.setting.map(labels))


def with_display_names(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the frame with settings called as ``conf/names.yaml`` says."""
    names = setting_names(list(frame.setting.unique()))
    return frame.assign(setting=frame.setting.map(names))


def _called(label: str, old: str, new: str) -> str:
    if label == old:
        return new
    parts = []
    for part in label.split(", "):
        key, equals, value = part.partition("=")
        parts.append(new if part == old else f"{new}{equals}{value}" if key == old and equals else part)
    return ", ".join(parts)


def _paired(frame: pd.DataFrame, wish: str, metrics: tuple[str, ...], console: Console) -> pd.DataFrame:
    """Print and return the paired differences from a baseline."""
    setting, _, baseline = wish.rpartition("=")
    if not (panels := choose(frame, metrics)):
        raise UserError(f"--paired {wish}: no run has a test metric to be compared by")
    panel = panels[0]
    with warnings.catch_warnings(record=True, action="always") as caught:
        compared = results.paired(frame, setting or "strategy", baseline, panel.metric, panel.split)
    lost = set(frame.setting[frame.run.isin(diverged(frame))])
    table = format_pairs(compared, panel.percent, lost)
    print_table(table, console, f"last {panel.title}, paired by seed; p of the paired t-test")
    for one in (one for one in caught if one.category is UserWarning):  # not what a library says
        console.print(str(one.message), soft_wrap=True)
    return table


def _write(
    tables: dict[str, pd.DataFrame],
    target: Path,
    options: argparse.Namespace,
    numbers: pd.DataFrame,
    columns: list[Column],
) -> None:
    """Write the tables beside the figure."""
    write_text(
        target.with_suffix(".md"),
        "\n".join(markdown_table(list(map(str, t)), t.to_numpy().tolist()) for t in tables.values()),
    )
    captions = {
        "comparison": "Mean ± standard deviation over seeds.",
        "paired": "Differences, paired by seed.",
    }
    if options.latex:
        texts = [
            to_latex(table, captions[name], name, columns if name == "comparison" else None)
            for name, table in tables.items()
        ]
        write_text(target.with_suffix(".tex"), "\n".join(texts))
    if options.csv:
        write_text(target.with_suffix(".csv"), numbers.to_csv(index=False))


def _common_parent(frame: pd.DataFrame) -> Path:
    return Path(os.path.commonpath([Path(run).resolve() for run in frame.run.unique()]))
