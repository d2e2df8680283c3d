"""The HTML page of a sweep, in the order of a reader's questions."""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from baselines import results
from baselines.engine.environment import read_environment
from baselines.errors import UserError
from baselines.experiment.experiment import Experiment

from .curves import Drawing, describe_bands, is_logarithmic, line_widths, log_ticks, statistics, unit_of
from .inspection import count_labels
from .names import dash_name, line_styles
from .runs import Panel, choose, examine_runs
from .tables import table_title, write_text

# Interactive plots: curves with their bands, and each node's labels.


DASHES = {
    "solid": "solid",
    "dashed": "dash",
    "dotted": "dot",
    "dashdot": "dashdot",
    "longdash": "longdash",
    "longdashdot": "longdashdot",
}
PIXELS = {
    "solid": "none",
    "dashed": "8 4",
    "dotted": "2 3",
    "dashdot": "8 3 2 3",
    "longdash": "14 4",
    "longdashdot": "14 3 2 3",
}
LIBRARY = "plotly.min.js"
WIDTH = 2.0  # of a line, in pixels
MANY_LABELS = 20  # with more labels, counts are drawn as a heat map
MAX_SHORT_NAME = 40  # characters of a name that fit into a narrow window
HOVER_TEXTS = {  # text after a mean; customdata are the band's ends and the deviation
    "std": " ± %{customdata[2]SHORT} (one standard deviation)",
    "ci": " (95 % interval %{customdata[0]LONG} to %{customdata[1]LONG})",
    "minmax": " (seeds from %{customdata[0]LONG} to %{customdata[1]LONG})",
    "none": "",
}
MARGINS: dict[str, Any] = {"l": 60, "r": 15, "t": 40, "b": 50}


def plot_curves(
    frame: pd.DataFrame, drawing: Drawing, panels: Mapping[str, pd.DataFrame] | None = None
) -> dict[tuple[str, str], go.Figure]:
    """Return plots by (metric, panel): a line per setting, the mean over seeds, with a band.

    ``frame`` is that of :func:`baselines.results.load`; ``panels`` are its parts by title.
    """
    every = list(map(str, frame.setting.unique()))
    styles = dict(zip(every, line_styles(every), strict=True))  # the same in all plots
    return {
        (metric.title, title): _panel(part, metric, drawing, styles)
        for metric in choose(frame, drawing.metrics, step_size=not drawing.metrics)
        for title, part in (panels or {"": frame}).items()
        if results.has(part, metric.metric, metric.split)
    }


def _panel(
    frame: pd.DataFrame, panel: Panel, drawing: Drawing, styles: dict[str, dict[str, Any]]
) -> go.Figure:
    x, band = drawing.x, drawing.band
    statistic = statistics(frame, panel, x, band)
    unit, size = unit_of(x, statistic.x.max())
    figure = go.Figure()
    labels = [label for label in frame.setting.unique() if label in statistic.index]
    curves = [statistic.loc[label].replace([np.inf, -np.inf], np.nan) for label in labels]
    widths = line_widths([(rows.x.to_numpy(), rows["mean"].to_numpy()) for rows in curves], WIDTH)
    hover = _hover(band, panel.percent)
    for label, rows, width in zip(labels, curves, widths, strict=True):
        for trace in _line(str(label), rows, rows.x / size, styles[str(label)], width):
            figure.add_trace(trace.update(hovertemplate=hover) if trace.customdata is not None else trace)
    figure.update_layout(
        xaxis_title=unit,
        hovermode="x unified",
        showlegend=False,  # the page has one legend for all plots
        template="plotly_white",
        margin=MARGINS,
    )
    with suppress(ValueError):  # Plotly 6.2 and older lack this title
        value = "round %{x}" if x == "round" else f"{unit}: %{{x:.3~g}}"
        figure.update_xaxes(unifiedhovertitle_text=value)
    if panel.percent:
        figure.update_yaxes(tickformat=".0%")
        return figure
    finite = statistic["mean"][np.isfinite(statistic["mean"])]
    low, high = finite.min(), finite.max()
    if is_logarithmic(low, high):
        ticks = log_ticks(low, high).tick_values(low, high)
        figure.update_yaxes(type="log", tickvals=ticks, ticktext=[f"{tick:g}" for tick in ticks])
    return figure


def _hover(band: str, percent: bool) -> str:
    """Return Plotly's template of a point: its mean, and the ends of its band."""
    long, short = (":.1%", ":.1%") if percent else (":.4g", ":.2g")
    return f"%{{y{long}}}" + HOVER_TEXTS[band].replace("LONG", long).replace("SHORT", short)


def _line(
    label: str, rows: pd.DataFrame, x: "pd.Series[float]", style: dict[str, Any], width: float
) -> list[go.Scatter]:
    """Return a setting's mean, and its band unless that has no width."""
    colour, dash = style["color"], DASHES[dash_name(style)]
    mean = go.Scatter(
        x=x,
        y=rows["mean"],
        name=_folded_plot(label),
        legendgroup=label,
        mode="lines" if len(rows) > 1 else "markers",
        line={"color": colour, "dash": dash, "width": width},
        customdata=rows[["low", "high", "std"]].to_numpy(),
    )
    has_mean = rows["mean"].notna()
    low, high = rows["low"][has_mean], rows["high"][has_mean]
    if not (high > low).any():
        return [mean]
    band = go.Scatter(
        x=np.concatenate([x[has_mean], x[has_mean][::-1]]),
        y=np.concatenate([low, high[::-1]]),
        legendgroup=label,
        showlegend=False,
        fill="toself",
        fillcolor=colour,
        opacity=0.15,
        line={"width": 0},
        hoverinfo="skip",
        mode="lines",
    )
    return [band, mean]


def _folded_plot(label: str) -> str:
    """Return a name folded into lines that fit a telephone."""
    lines = [""]
    for part in label.split(", "):
        if lines[-1] and len(lines[-1]) + len(part) > MAX_SHORT_NAME:
            lines[-1] += ","
            lines.append(part)
        else:
            lines[-1] += f", {part}" if lines[-1] else part
    return "<br>".join(lines)


def plot_partition(counts: np.ndarray) -> go.Figure:
    """Plot how many examples [nodes, labels] each node holds: bars, or a heat map for many labels."""
    nodes, labels = counts.shape
    if labels > MANY_LABELS:
        hover = "node %{x}, label %{y}: %{z}<extra></extra>"
        figure = go.Figure(go.Heatmap(z=counts.T, colorscale="Blues", hovertemplate=hover))
        figure.update_yaxes(title="label")
    else:
        figure = go.Figure()
        for label in range(labels):
            hover = f"node %{{x}}, label {label}: %{{y}}<extra></extra>"
            figure.add_bar(x=np.arange(nodes), y=counts[:, label], name=str(label), hovertemplate=hover)
        figure.update_layout(barmode="stack", legend_title="label")
        figure.update_yaxes(title="examples")
    figure.update_layout(xaxis_title="node", template="plotly_white", margin=MARGINS)
    return figure


# The page's other sections: tables, settings, the runs' status, versions and machines.


def sortable_table(rows: pd.DataFrame) -> str:
    """Return a table of texts that can be sorted by clicking on a heading."""
    return (
        f'<div class="wide">{rows.to_html(index=False, border=0, classes="sortable", na_rep="-")}</div>\n'
    )


def settings_section(frame: pd.DataFrame) -> str:
    """Return the settings' differences, and what all runs share."""
    rows = frame[["setting", *results.settings(frame)]].drop_duplicates("setting")
    same = [key for key in results.settings(frame) if len(set(rows[key].astype(str))) == 1]
    shared = ", ".join(f"{key}={rows[key].iloc[0]}" for key in same)
    differing = rows.drop(columns=same).convert_dtypes().astype(str)  # a count beside none stays one
    text = sortable_table(differing) if len(differing.columns) > 1 else ""
    if shared:
        text += f"<p>The same in all: {escape(shared)}.</p>\n"
    run = Path(frame.run.iloc[0])
    config = (run / "config.yaml").read_text(encoding="utf-8") if (run / "config.yaml").exists() else ""
    return text + _folded_section(f"The whole configuration of the first run, {run.name}", config)


def runs_section(frame: pd.DataFrame, folders: list[Path]) -> str:
    """Return each run's status, and the runs left out, with reasons."""
    failed = frame[(frame.split == "train") & (frame.metric == "failed")].groupby("run").value.sum()
    rows = []
    base = os.path.commonpath([folder.resolve() for folder in folders])
    ordered = frame.sort_values("seed", kind="stable")
    for (setting, seed, run), own in ordered.groupby(["setting", "seed", "run"], sort=False):
        content = read_environment(Path(str(run)))
        rows.append(
            {
                "setting": setting,
                "seed": seed,
                "rounds": own["round"].max(),
                "ended": own.status.iloc[0] if "status" in own else content.get("status", "-"),
                "seconds": f"{content['wall_seconds']:.0f}" if "wall_seconds" in content else "-",
                "replies that failed": f"{failed.get(run, 0):.0f}",
                "run": _below(base, str(run)),
            }
        )
    left_out = [
        f"<li>{escape(_below(base, str(run)))}: {escape(reason)}</li>"
        for run, reason in examine_runs(folders)[1].items()
    ]
    named = f"<p>Left out:</p><ul>{''.join(left_out)}</ul>\n" if left_out else ""
    return sortable_table(pd.DataFrame(rows)) + named


def surroundings_section(frame: pd.DataFrame) -> str:
    """Return the commits, versions and machines of all runs."""
    values_of: dict[str, dict[str, None]] = {}
    for run in frame.run.unique():
        content = read_environment(Path(run))
        parts: dict[str, Any] = {"commit": content.get("git_commit")}
        parts |= content.get("versions") or {}
        parts |= content.get("hardware") or {}
        for key, value in parts.items():
            if value is not None:
                values_of.setdefault(key, {})[str(value)] = None
    rows = [{"what": key, "value": "; ".join(values)} for key, values in values_of.items()]
    return f'<div class="wide">{pd.DataFrame(rows).to_html(index=False, border=0, header=False)}</div>\n'


def _below(base: str, run: str) -> str:
    """Return a run's folder relative to the sweep's."""
    folder = Path(run).resolve()
    return folder.name if folder == Path(base) else os.path.relpath(folder, base)


def _folded_section(title: str, text: str) -> str:
    if not text:
        return ""
    return f"<details><summary>{escape(title)}</summary><pre>{escape(text)}</pre></details>\n"


# The frame of every page: style, and sortable tables. Nothing is fetched from elsewhere.


def format_page(title: str, body: str) -> str:
    """Return a page, as HTML, around its body."""
    template = Template(files(__package__).joinpath("page.html").read_text(encoding="utf-8"))
    return template.substitute(title=escape(title), body=body)


# A sweep as one HTML page that needs no server and no network: python -m baselines.compare --html.


MOST_PARTITIONS = 6  # more would make a long page
PLOTLY = {"responsive": True, "displaylogo": False, "showSendToCloud": False, "plotlyServerURL": ""}
PAIRED = "last value, paired by seed; p of the paired t-test"


def write_page(
    target: Path,
    frame: pd.DataFrame,
    panels: Mapping[str, pd.DataFrame],
    tables: dict[str, pd.DataFrame],
    folders: list[Path],
    drawings: Sequence[Drawing],
    assets: bool = False,
    note: str = "",
) -> None:
    """Write a self-contained page with sortable tables and interactive curves.

    Parameters
    ----------
    target : the file
    frame : the measurements, as of :func:`baselines.results.load`
    panels : the parts with curves side by side, by title, named and ordered as in the table
    tables : ``comparison``, and ``paired`` if requested, as texts
    folders : the searched folders, to name runs that cannot be read
    drawings : the metrics and horizontal axis of each drawing
    assets : whether Plotly's code, 4.9 MB, is a file beside the page, shared by all pages there
    note : the meaning of the marks in the table
    """
    title = ", ".join(folder.resolve().name for folder in folders)
    caption = table_title(frame, drawings[0].metrics).capitalize()
    marks = f"<p>{escape(note)}.</p>\n" if note else ""
    body = [
        f"<h1>{escape(title)}</h1>",
        f"<p>{_count_runs(frame)}</p>",
        _section("Results", f"<p>{escape(caption)}.</p>" + sortable_table(tables["comparison"]) + marks),
    ]
    if "paired" in tables:
        paired = f"<p>{escape(PAIRED.capitalize())}.</p>" + sortable_table(tables["paired"])
        body.append(_section("Differences", paired))
    body += [
        _section("Curves", _curves(panels, drawings)),
        _section("Who holds what", _partitions(frame)),
        _section("Settings", settings_section(frame)),
        _section("Runs", runs_section(frame, folders)),
        _section("Made with", surroundings_section(frame)),
    ]
    body.insert(0, _library(target if assets else None))
    write_text(target, format_page(title, "\n".join(body)))


def _library(target: Path | None) -> str:
    """Return the script tag with Plotly's code; with ``target``, write the code into a file beside it."""
    if target is None:
        return f"<script>{get_plotlyjs()}</script>"
    write_text(target.with_name(LIBRARY), get_plotlyjs())
    return f'<script src="{LIBRARY}"></script>'


def _count_runs(frame: pd.DataFrame) -> str:
    settings, runs = frame.setting.nunique(), frame.run.nunique()
    return f"{runs} run{'s'[: runs != 1]} of {settings} setting{'s'[: settings != 1]}."


def _section(title: str, content: str) -> str:
    return f"<section><h2>{escape(title)}</h2>\n{content}</section>" if content else ""


def _curves(panels: Mapping[str, pd.DataFrame], drawings: Sequence[Drawing]) -> str:
    hint = "A name hides its line in all plots, a double click all others."
    frame = pd.concat(panels.values())
    by_x = [plot_curves(frame, drawing, panels) for drawing in drawings]
    rows: dict[str, str] = {}  # plots by metric
    for metric, title in by_x[0]:
        plots = (_plot(f"{metric}, {title}" if title else metric, one[metric, title]) for one in by_x)
        rows[metric] = rows.get(metric, "") + "".join(plots)
    legend = _legend(list(map(str, frame.setting.unique())))
    kind = "row" if len(panels) > 1 else "column"
    plots_by_metric = "".join(f'<div class="{kind}">{plots}</div>\n' for plots in rows.values())
    caption = f"<p>{escape(describe_bands(frame, drawings[0].band))} {hint}</p>\n"
    return f"{caption}{legend}{plots_by_metric}" if rows else ""


def _legend(labels: list[str]) -> str:
    """Return a button for each line, with the line's look, for mouse and keyboard."""
    buttons = []
    for label, style in zip(labels, line_styles(labels), strict=True):
        dashes = PIXELS[dash_name(style)]
        line = (
            f'<path d="M0 5h30" stroke="{style["color"]}" stroke-width="2.5" stroke-dasharray="{dashes}"/>'
        )
        swatch = f'<svg width="30" height="10" aria-hidden="true">{line}</svg>'
        name = escape(label, quote=True)
        buttons.append(
            f'<button type="button" aria-pressed="true" data-label="{name}">{swatch} {name}</button>'
        )
    return f'<div class="names" role="group" aria-label="lines shown">{"".join(buttons)}</div>\n'


def _plot(title: str, figure: go.Figure) -> str:
    plot = figure.to_html(full_html=False, include_plotlyjs=False, config=PLOTLY)
    return f'<div><h3>{escape(title)}</h3><div class="plot">{plot}</div></div>\n'


def _partitions(frame: pd.DataFrame) -> str:
    """Plot how many examples of each label each node holds, for each partition in the sweep."""
    plots: dict[bytes, str] = {}
    for setting, own in frame.groupby("setting", sort=False):
        first = own.sort_values("seed", kind="stable").iloc[0]
        run = Path(first.run)
        try:
            counts = count_labels(Experiment(read_environment(run)["overrides"]))
        except (UserError, OSError) as error:
            plots[str(error).encode()] = f"<p>{escape(str(setting))}: not shown ({escape(str(error))})</p>"
            continue
        title = f"{setting}, seed {first.seed}"
        if counts is not None and counts.tobytes() not in plots and len(plots) < MOST_PARTITIONS:
            plots[counts.tobytes()] = _plot(title, plot_partition(counts))
    return "".join(plots.values())
