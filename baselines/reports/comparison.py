"""The tables, figures and pages of the runs given to baselines.compare."""

import argparse
import os
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isnan, nan
from pathlib import Path

import pandas as pd
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from rich.console import Console
from yaml import YAMLError  # type: ignore[import-untyped]

from baselines import results
from baselines.errors import UserError

from . import curves
from .names import column_name, setting_name, setting_names, value_name
from .runs import (
    Panel,
    choose,
    column,
    dataset_names,
    diverged,
    divergences,
    mean_of_all,
    remarks,
    tidy,
)
from .statistics import adjust_holm, format_pairs
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

SIGNIFICANCE_LEVEL = 0.05  # below this p, after Holm's correction, a difference is marked


@dataclass(frozen=True)
class Selection:
    """The runs of a table, under the table's names.

    Parameters
    ----------
    frame : their measurements
    panels : its parts side by side, by title; without panels, one part with an empty title
    every : the same parts, including the settings that --best leaves out
    whole : all runs, each setting under its full name
    renames : how the names were changed, as ``OLD=NEW``
    """

    frame: pd.DataFrame
    panels: dict[str, pd.DataFrame]
    every: dict[str, pd.DataFrame]
    whole: pd.DataFrame
    renames: list[str]


def compare(options: argparse.Namespace) -> None:
    """Print the tables, draw the figure, and write the requested files."""
    _check(options)
    frame, left_out = tidy(options.folders)
    chosen = _select(frame, options)
    console = Console(width=None if sys.stdout.isatty() else 120, highlight=False, markup=False)
    target = options.figure or _common_parent(chosen.frame) / "comparison.png"
    columns, note = _columns(chosen, options), ""
    paired = _pair(chosen, options) if options.paired else None
    if paired is not None:
        columns, note = _mark(columns, chosen, paired)
    tables = {"comparison": _with_rank(summarise(chosen.frame, columns), chosen, options)}
    print_table(tables["comparison"], console, table_title(chosen.frame, tuple(options.metric)))
    if note:
        console.print(note, soft_wrap=True)
    if paired is not None:
        tables["paired"] = paired.table
        print_table(paired.table, console, paired.title)
        for line in paired.left_out:
            console.print(line, soft_wrap=True)
    drawings = [
        curves.Drawing(tuple(options.metric), x, options.width, options.band, options.ylim)
        for x in options.x or ["round"]
    ]
    drawn = curves.draw(chosen.frame, target, drawings[0], chosen.panels)
    _write(tables, target, options, OutputNotes(chosen, columns, note, drawn or ""))
    for line in (*divergences(frame), *remarks(map(Path, chosen.frame.run.unique()), left_out)):
        console.print(line, soft_wrap=True)
    if drawn:
        console.print(drawn, soft_wrap=True)
    if drawn is not None:
        console.print(f"figure: {target}", soft_wrap=True)
    if options.html:
        from .html import write_page  # its imports take a second

        runs = chosen.whole[chosen.whole.run.isin(chosen.frame.run)]
        write_page(
            options.html, runs, chosen.panels, tables, options.folders, drawings, options.html_assets, note
        )
        console.print(f"page: {options.html}", soft_wrap=True)


def _check(options: argparse.Namespace) -> None:
    """Refuse mistakes that show without reading a run."""
    if options.figure:
        curves.check_name(options.figure)
    if options.ylim and not options.ylim[0] < options.ylim[1]:
        low, high = options.ylim
        raise UserError(f"--ylim {low:g} {high:g}: expected the lower end first")
    if options.html_assets and not options.html:
        raise UserError("--html-assets: there is no page; add --html PAGE")
    if len(options.x) > 1 and not options.html:
        raise UserError("--x: the figure has one; add --html PAGE, which has a plot by each")


def _select(frame: pd.DataFrame, options: argparse.Namespace) -> Selection:
    """Return the requested settings, named and ordered as the command line says."""
    metrics = tuple(options.metric)
    for name in options.lower:
        if name.rpartition("/")[2] not in set(frame.metric):
            raise UserError(f"--lower {name}: no run has measured it")
    wishes = [*read_names(options.names), *options.label]
    short, keys = without_panel(frame, options.panels) if options.panels else (frame, None)
    own = short if options.best is None else best(short, options.best, metrics, options.lower, keys)
    named = order_settings(with_display_names(rename_settings(own, wishes)), options.order, wishes)
    whole = with_display_names(rename_settings(frame, wishes, strict=False))
    if keys is None:
        return Selection(named, {"": named}, {"": whole}, whole, wishes)
    panels = split_by(named, keys, options.panels)
    all_named = with_display_names(rename_settings(short, wishes, strict=False))
    every = panels if options.best is None else split_by(all_named, keys, options.panels)
    return Selection(named, panels, every, whole, wishes)


def _columns(chosen: Selection, options: argparse.Namespace) -> list[Column]:
    """Return the table's columns; with panels, the last value in each, by its title."""
    metrics = tuple(options.metric)
    if len(chosen.panels) == 1:
        return summary_columns(chosen.frame, metrics, options.rounds_to, options.lower)
    columns = []
    metrics_shown = choose(chosen.frame, metrics)
    for one in metrics_shown if metrics else metrics_shown[:1]:
        for title, part in chosen.panels.items():
            if results.has(part, one.metric, one.split):
                name = (f"{one.split}/{one.metric}",)
                (column, *_) = summary_columns(part, name, None, options.lower)
                heading = title if len(metrics) < 2 else f"{title}, {column.heading}"
                columns.append(replace(column, heading=heading))
    return columns


def best(
    frame: pd.DataFrame,
    count: int,
    metrics: tuple[str, ...] = (),
    lower: Sequence[str] = (),
    panel_of: "pd.Series[str] | None" = None,
) -> pd.DataFrame:
    """Return the rows of the settings with the best last value of the first metric, the best first.

    With panels (``panel_of`` each run), the average rank decides, among settings that are in all of them.
    Settings with a diverged run are left out.

    Raises
    ------
    UserError : when no run has the metric, ``count`` is below 1, or no setting is left
    """
    if count < 1:
        raise UserError(f"--best {count} is out of range: expected a whole number above 0")
    if not (ordered_by := choose(frame, metrics)):
        raise UserError("--best: no run has a test metric to be ordered by")
    metric = ordered_by[0]
    lost = frame.setting[frame.run.isin(diverged(frame))]
    if (frame := frame[~frame.setting.isin(lost)]).empty:
        raise UserError("--best: each setting has a run that has diverged, and none is the best")
    is_lower = is_less_better(metric, lower)
    if panel_of is None:
        values = mean_of_all(results.last(frame, metric.metric, metric.split), "setting")
    else:
        parts = [part for _, part in frame.groupby(frame.run.map(panel_of), sort=False)]
        measured = [part for part in parts if results.has(part, metric.metric, metric.split)]
        values = average_rank(measured, metric, is_lower).dropna()
        is_lower = True  # for ranks
    if values.empty:
        raise UserError("--best with --panels: no setting has runs in every panel")
    values = values.reindex([label for label in frame.setting.unique() if label in values.index])
    ranked = values.sort_values(ascending=is_lower, kind="stable").index
    return pd.concat(frame[frame.setting == label] for label in ranked[:count])


def read_names(file: Path | None) -> list[str]:
    """Return the names in a file as ``OLD=NEW``; empty without a file.

    Raises
    ------
    UserError : when it cannot be read, or holds anything else
    """
    if file is None:
        return []
    try:
        content = OmegaConf.to_container(OmegaConf.load(file))
    except (OSError, ValueError, YAMLError, OmegaConfBaseException) as error:
        raise UserError(f"--names {file} cannot be read: {str(error).splitlines()[0]}") from error
    if not isinstance(content, dict) or any(isinstance(new, dict | list) for new in content.values()):
        raise UserError(f"--names {file}: expected a line OLD: NEW for each name")
    return [
        f"{old}={'' if new is None else new}"
        for old, new in ((str(old), new) for old, new in content.items())
    ]


def rename_settings(frame: pd.DataFrame, wishes: list[str], strict: bool = True) -> pd.DataFrame:
    """Return the frame with settings renamed by ``OLD=NEW``: a label, a part of it, or a key.

    Without NEW, the part is left out, or the key's name. ``strict`` refuses a wish that matches nothing.

    Raises
    ------
    UserError : for a name that no setting has, or that two would share
    """
    labels = {label: label for label in frame.setting.unique()}
    for wish in wishes:
        old, new = split_name(wish)
        changed = {label: _rename_label(now, old, new) for label, now in labels.items()}
        if changed == labels and strict:
            raise UserError(f"--label {wish}: no setting is called {old}; there are {'; '.join(labels)}")
        labels = changed
    if len(set(labels.values())) < len(labels):
        if not strict:
            return frame
        raise UserError("--label gives two settings the same name: choose others")
    return frame.assign(setting=frame.setting.map(labels))


def split_name(wish: str) -> tuple[str, str]:
    """Return the old name and the new one of ``OLD=NEW``."""
    old, equals, new = wish.rpartition("=")
    if not (old and equals):
        raise UserError(f"--label {wish}: expected OLD=NEW")
    return old, new


def names_of(wish: str, renames: Sequence[str]) -> set[str]:
    """Return the names that a setting requested by this name may have in a table: ``fedavg`` is FedAvg."""
    new = wish
    for rename in renames:
        new = _rename_label(new, *split_name(rename))
    return {wish, setting_name(wish), new, setting_name(new)}


def order_settings(frame: pd.DataFrame, wishes: Sequence[str], renames: Sequence[str] = ()) -> pd.DataFrame:
    """Return the frame with the settings first that have these names, or such a part in their name.

    Raises
    ------
    UserError : for a name that no setting has
    """
    labels = [str(label) for label in frame.setting.unique()]
    places = dict.fromkeys(labels, len(wishes))
    for place, wish in reversed(list(enumerate(wishes))):
        names = names_of(wish, renames)
        same = [label for label in labels if label in names]
        same = same or [label for label in labels if names & set(label.split(", "))]
        if not same:
            raise UserError(f"--order {wish}: no setting is called so; there are {'; '.join(labels)}")
        places |= dict.fromkeys(same, place)
    rank = {label: place for place, label in enumerate(sorted(labels, key=places.__getitem__))}
    return frame.sort_values("setting", key=lambda column: column.map(rank), kind="stable")


# Panels: the values of one setting side by side; names leave it out.


def without_panel(frame: pd.DataFrame, key: str) -> tuple[pd.DataFrame, "pd.Series[str]"]:
    """Return the frame with ``key`` left out of the settings' names, and its value by run.

    Differences that come with the panel, such as a model that fits the data, are left out as well.

    Raises
    ------
    UserError : when the runs do not differ in it
    """
    name, settings = column(key), results.settings(frame)
    values_of = frame.drop_duplicates("setting").set_index("setting")[settings].astype(str)
    varied = [one for one in settings if len(values_of[one].unique()) > 1]
    if name not in varied:
        names = ", ".join(one.removeprefix("option.") for one in varied) or "nothing"
        raise UserError(f"--panels {key}: the runs do not differ in it; they differ in {names}")
    by_panel = values_of.groupby(name)
    fixed = [one for one in varied if one == name or by_panel[one].nunique().max() == 1]
    left_out = {one.removeprefix("option.") for one in fixed}
    labels = {}
    for label in map(str, values_of.index):
        parts = {part: part.partition("=") for part in label.split(", ")}
        remaining = [
            part
            for part, (first, equals, _) in parts.items()
            if (first if equals else "strategy") not in left_out
        ]
        labels[label] = ", ".join(remaining) or "all"
    values = frame.drop_duplicates("run").set_index("run")[name].astype(str)
    return frame.assign(setting=frame.setting.map(labels)), values


def split_by(frame: pd.DataFrame, values: "pd.Series[str]", key: str) -> dict[str, pd.DataFrame]:
    """Return the part with each value, by its display name."""
    own = frame.run.map(values)
    return {value_name(value, key): frame[own == value] for value in own.unique()}


def _with_rank(table: pd.DataFrame, chosen: Selection, options: argparse.Namespace) -> pd.DataFrame:
    """Return the table with the average rank over the panels of each setting that is in all of them."""
    if len(chosen.panels) == 1:
        return table
    metric = choose(chosen.frame, tuple(options.metric))[0]
    parts = [part for part in chosen.panels.values() if results.has(part, metric.metric, metric.split)]
    ranks = average_rank(parts, metric, is_less_better(metric, options.lower))
    own = [float(ranks.get(name, nan)) for name in table.setting]
    texts = ["-" if isnan(rank) else f"{rank:.2f}" for rank in own]
    return table.assign(**{"average rank": texts})


def average_rank(parts: Sequence[pd.DataFrame], metric: Panel, lower: bool) -> "pd.Series[float]":
    """Return each setting's mean rank over the panels, 1 the best; NaN unless it is in all of them.

    Equal means share their ranks' mean; a setting that has diverged comes last.
    """
    columns = []
    for part in parts:
        means = mean_of_all(results.last(part, metric.metric, metric.split), "setting")
        lost = part.setting[part.run.isin(diverged(part))].unique()
        means = means.where(~means.index.isin(lost)).round(12)  # equal up to the order of summation
        columns.append(means.rank(ascending=lower, na_option="bottom"))
    return pd.concat(columns, axis=1).mean(axis=1, skipna=False)


def with_display_names(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the frame with settings named by ``conf/names.yaml``."""
    names = setting_names(list(frame.setting.unique()))
    return frame.assign(setting=frame.setting.map(names))


def _rename_label(label: str, old: str, new: str) -> str:
    if label == old:
        return new
    parts = []
    for part in label.split(", "):
        key, equals, value = part.partition("=")
        if key == old and equals:
            part = f"{new}={value}" if new else value
        parts.append(new if part == old else part)
    return ", ".join(part for part in parts if part)


# Differences from a baseline, and the files written.


@dataclass(frozen=True)
class PairedDifferences:
    """The differences from a baseline: table, title, numbers, and a line for each unpaired setting."""

    table: pd.DataFrame
    title: str
    numbers: pd.DataFrame
    left_out: list[str]


def _pair(chosen: Selection, options: argparse.Namespace) -> PairedDifferences:
    """Return the paired differences in each panel from a baseline: one setting, or those with an option."""
    wish, metrics = options.paired, tuple(options.metric)
    if not (measured := choose(chosen.frame, metrics)):
        raise UserError(f"--paired {wish}: no run has a test metric to be compared by")
    panel = measured[0]
    pairs, left_out, missing = [], [], []
    for title, part in chosen.every.items():
        try:
            compared, lines = _pair_in(part, wish, chosen.renames, panel)
        except UserError as error:
            missing.append(f"{title}: {error}" if title else str(error))
            continue
        pairs.append(compared.assign(panel=title))
        left_out += [f"{title}: {line}" if title else line for line in lines]
    if not pairs:
        raise UserError("; ".join(missing))
    numbers = pd.concat(pairs, ignore_index=True)
    numbers["p_holm"] = adjust_holm(numbers.p.to_numpy())  # of all panels together
    frame = pd.concat(chosen.every.values())
    lost = set(frame.setting[frame.run.isin(diverged(frame))])
    table = format_pairs(numbers, panel.percent, lost)
    if len(chosen.every) > 1:
        table.insert(1, column_name(options.panels), numbers.panel)
    title = f"last {panel.title}, paired by seed; p of the paired t-test"
    return PairedDifferences(table, title, numbers, [*left_out, *missing])


def _pair_in(
    part: pd.DataFrame, wish: str, renames: Sequence[str], panel: Panel
) -> tuple[pd.DataFrame, list[str]]:
    """Return the differences within a panel, and a line for each unpaired setting."""
    setting, _, baseline = wish.rpartition("=")
    if labels := names_of(wish, renames) & set(part.setting):
        setting, baseline = "setting", min(labels, key=lambda label: (label != wish, label))
    with warnings.catch_warnings(record=True, action="always") as caught:
        compared = results.paired(part, setting or "strategy", baseline, panel.metric, panel.split)
    # not libraries' warnings
    return compared, [str(one.message) for one in caught if one.category is UserWarning]


def _mark(columns: list[Column], chosen: Selection, paired: PairedDifferences) -> tuple[list[Column], str]:
    """Return the columns, marking settings that differ from their baseline, and the mark's meaning."""
    differs = paired.numbers[paired.numbers.p_holm < SIGNIFICANCE_LEVEL]
    if differs.empty:
        return columns, ""
    marked = list(columns)
    for title in chosen.panels:
        heads = [column.heading.split(", last ")[0] for column in marked]
        place = heads.index(title) if title in heads else 0  # the first column has the compared metric
        marked[place] = replace(marked[place], marked=frozenset(differs.setting[differs.panel == title]))
    tests = int(paired.numbers.p.notna().sum())
    correction = f" after Holm's correction for {tests} comparisons" if tests > 1 else ""
    bases = " or ".join(paired.numbers.baseline.unique())
    return marked, f"* differs from {bases}: paired t-test, p < {SIGNIFICANCE_LEVEL:g}{correction}"


@dataclass(frozen=True)
class OutputNotes:
    """What is written besides the tables: their runs and columns, and the notes on marks and bands."""

    chosen: Selection
    columns: list[Column]
    note: str
    bands: str


def _write(
    tables: dict[str, pd.DataFrame], target: Path, options: argparse.Namespace, written: OutputNotes
) -> None:
    """Write the tables beside the figure, and a caption for its bands."""
    texts = {
        name: markdown_table(list(map(str, table)), table.to_numpy().tolist())
        for name, table in tables.items()
    }
    if written.note:
        texts["comparison"] += f"\n{written.note.replace('*', chr(92) + '*', 1)}\n"
    write_text(target.with_suffix(".md"), "\n".join(texts.values()))
    if written.bands:
        write_text(target.with_suffix(".txt"), written.bands + "\n")
    if options.latex:
        captions = _captions(tables, options, written)
        columns = {"comparison": written.columns}
        labels = {"comparison": target.stem, "paired": f"{target.stem}-paired"}
        latex = [
            to_latex(table, captions[name], labels[name], columns.get(name))
            for name, table in tables.items()
        ]
        write_text(target.with_suffix(".tex"), "\n".join(latex))
    if options.csv:
        numbers = summary_numbers(written.chosen.frame, written.columns)
        write_text(target.with_suffix(".csv"), numbers.to_csv(index=False))


def _captions(
    tables: dict[str, pd.DataFrame], options: argparse.Namespace, written: OutputNotes
) -> dict[str, str]:
    """Return each table's caption: metrics, data, number of seeds, and the meaning of marks."""
    frame, panels = written.chosen.frame, written.chosen.panels
    metrics_shown = choose(frame, tuple(options.metric))
    if len(panels) > 1 and not options.metric:
        metrics_shown = metrics_shown[:1]
    metrics = " and ".join(one.title for one in metrics_shown) or "results"
    data = "" if len(panels) > 1 else f" on {', '.join(dataset_names(frame))}"
    seeds = frame.groupby("setting").seed.nunique()
    low, high = int(seeds.min()), int(seeds.max())
    counted = f"{high} seed{'s' * (high != 1)}" if low == high else f"{low} to {high} seeds"
    spread = "mean ± standard deviation over" if high > 1 else "of"
    rank = " Average rank over the columns, 1 the best." if "average rank" in tables["comparison"] else ""
    mark = f" {written.note}." if written.note else ""
    bold = " Bold: the best." if len(tables["comparison"]) > 1 else ""
    title = metrics_shown[0].title if metrics_shown else ""
    differ = f"Differences in the last {title}{data}, paired by seed, with p of the paired t-test."
    return {
        "comparison": f"{metrics[:1].upper()}{metrics[1:]}{data}: {spread} {counted}.{bold}{rank}{mark}",
        "paired": differ,
    }


def _common_parent(frame: pd.DataFrame) -> Path:
    return Path(os.path.commonpath([Path(run).resolve() for run in frame.run.unique()]))
