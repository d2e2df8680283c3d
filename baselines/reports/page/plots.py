"""Plots to hover and toggle: curves with their bands, and who holds what."""

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from baselines.reports import figure_style as style
from baselines.reports.curves import Drawing, statistics, unit_of
from baselines.reports.shown import Shown, choose

DASHES = ("solid", "dash", "dot", "dashdot", "longdash")  # as style.DASHES
WIDTH = 2.0  # of a line, in pixels
MANY_LABELS = 20  # of more labels, counts are a picture with a pixel for each
LONG = 40  # characters of a name that a narrow window has room for
AROUND: dict[str, Any] = {"l": 60, "r": 15, "t": 40, "b": 50}


def curves(frame: pd.DataFrame, drawing: Drawing) -> dict[str, go.Figure]:
    """Return a plot of each metric by its title: a line per setting, the mean over seeds, with a band.

    ``frame`` is that of :func:`baselines.results.load`. A band is one standard deviation to each side.
    """
    panels = choose(frame, drawing.metrics, step_size=not drawing.metrics)
    return {shown.title: _panel(frame, shown, drawing.x) for shown in panels}


def _panel(frame: pd.DataFrame, shown: Shown, x: str) -> go.Figure:
    found = statistics(frame, shown, x)
    unit, size = unit_of(x, found.x.max())
    figure = go.Figure()
    labels = [label for label in frame.setting.unique() if label in found.index]
    curves = [found.loc[label].replace([np.inf, -np.inf], np.nan) for label in labels]
    widths = style.widths([(rows.x.to_numpy(), rows["mean"].to_numpy()) for rows in curves], WIDTH)
    places = {label: place for place, label in enumerate(frame.setting.unique())}
    for label, rows, width in zip(labels, curves, widths, strict=True):
        for trace in _line(str(label), rows, rows.x / size, places[label], width):
            figure.add_trace(trace)
    figure.update_layout(
        xaxis_title=unit,
        hovermode="x unified",
        legend={
            "orientation": "h",
            "yref": "container",
            "yanchor": "bottom",
            "y": 0,
            "x": 0,
            "maxheight": 0.8,
        },
        template="plotly_white",
        margin=AROUND,
    )
    if shown.percent:
        figure.update_yaxes(tickformat=".0%")
        return figure
    finite = found["mean"][np.isfinite(found["mean"])]
    low, high = finite.min(), finite.max()
    if style.logarithmic(low, high):
        ticks = style.log_ticks(low, high).tick_values(low, high)
        figure.update_yaxes(type="log", tickvals=ticks, ticktext=[f"{tick:g}" for tick in ticks])
    return figure


def _line(
    label: str, rows: pd.DataFrame, x: "pd.Series[float]", place: int, width: float
) -> list[go.Scatter]:
    """Return a setting's mean, and its band where there are several seeds."""
    colour, dash = style.COLOURS[place % len(style.COLOURS)], DASHES[place % len(DASHES)]
    mean = go.Scatter(
        x=x,
        y=rows["mean"],
        name=_folded(label),
        legendgroup=label,
        mode="lines" if len(rows) > 1 else "markers",
        line={"color": colour, "dash": dash, "width": width},
        customdata=rows["std"],
        hovertemplate="%{y:.4g} ± %{customdata:.2g}",
    )
    there = rows["mean"].notna()
    if not rows["std"].any():
        return [mean]
    low, high = (rows["mean"] - rows["std"])[there], (rows["mean"] + rows["std"])[there]
    band = go.Scatter(
        x=np.concatenate([x[there], x[there][::-1]]),
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


def _folded(label: str) -> str:
    """Return a name in lines that are no longer than a telephone is wide."""
    lines = [""]
    for part in label.split(", "):
        if lines[-1] and len(lines[-1]) + len(part) > LONG:
            lines[-1] += ","
            lines.append(part)
        else:
            lines[-1] += f", {part}" if lines[-1] else part
    return "<br>".join(lines)


def partition(counts: np.ndarray) -> go.Figure:
    """Return how many examples [nodes, labels] each node holds: bars, or a picture of many labels."""
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
    figure.update_layout(xaxis_title="node", template="plotly_white", margin=AROUND)
    return figure
