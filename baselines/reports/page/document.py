"""The page: what a reader of a sweep wants to see, in the order in which it is asked."""

from html import escape
from pathlib import Path

import pandas as pd
import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from baselines.engine.environment import environment
from baselines.errors import UserError
from baselines.experiment.experiment import Experiment
from baselines.reports import partition_table, summary
from baselines.reports.curves import Drawing, says
from baselines.reports.written import write

from . import plots, sections
from .skeleton import whole

MOST_PARTITIONS = 6  # a sweep over more would be a long page
PLOTLY = {"responsive": True, "displaylogo": False, "showSendToCloud": False, "plotlyServerURL": ""}
PAIRED = "last value, paired by seed; p of the paired t-test"


def write_page(
    target: Path,
    frame: pd.DataFrame,
    tables: dict[str, pd.DataFrame],
    folders: list[Path],
    drawing: Drawing,
) -> None:
    """Write a page that needs nothing else: its tables sort, its curves can be hovered and toggled.

    Parameters
    ----------
    target : the file
    frame : the measurements, as of :func:`baselines.results.load`
    tables : ``comparison``, and ``paired`` where it was asked for, as texts
    folders : where the runs were looked for, so that those that cannot be read are named
    drawing : which metrics, and what the curves go by
    """
    title = ", ".join(folder.resolve().name for folder in folders)
    told = summary.title(frame, drawing.metrics).capitalize()
    body = [
        f"<h1>{escape(title)}</h1>",
        f"<p>{_counted(frame)}</p>",
        _section("Results", f"<p>{escape(told)}.</p>" + sections.table(tables["comparison"])),
    ]
    if "paired" in tables:
        paired = f"<p>{escape(PAIRED.capitalize())}.</p>" + sections.table(tables["paired"])
        body.append(_section("Differences", paired))
    body += [
        _section("Curves", _curves(frame, drawing)),
        _section("Who holds what", _partitions(frame)),
        _section("Settings", sections.settings(frame)),
        _section("Runs", sections.runs(frame, folders)),
        _section("Made with", sections.surroundings(frame)),
    ]
    body.insert(0, f"<script>{get_plotlyjs()}</script>")  # the page needs no network
    write(target, whole(title, "\n".join(body)))


def _counted(frame: pd.DataFrame) -> str:
    settings, runs = frame.setting.nunique(), frame.run.nunique()
    return f"{runs} run{'s'[: runs != 1]} of {settings} setting{'s'[: settings != 1]}."


def _section(title: str, content: str) -> str:
    return f"<section><h2>{escape(title)}</h2>\n{content}</section>" if content else ""


def _curves(frame: pd.DataFrame, drawing: Drawing) -> str:
    told = "A click on a name hides its line, a double click all others."
    names = frame.setting.nunique()
    shown = "".join(_plot(title, figure, names) for title, figure in plots.curves(frame, drawing).items())
    return f"<p>{escape(says(frame))} {told}</p>\n{shown}" if shown else ""


def _plot(title: str, figure: go.Figure, names: int = 0) -> str:
    """Return a plot; ``names`` are those below it, which make it taller."""
    plot = figure.to_html(full_html=False, include_plotlyjs=False, config=PLOTLY)
    return f'<h3>{escape(title)}</h3><div class="plot" style="--names: {names}">{plot}</div>\n'


def _partitions(frame: pd.DataFrame) -> str:
    """Return who holds how many examples of which label, for each partition that the sweep has."""
    seen: dict[bytes, str] = {}
    for setting, own in frame.groupby("setting", sort=False):
        first = own.sort_values("seed", kind="stable").iloc[0]
        run = Path(first.run)
        try:
            counts = partition_table.counted(Experiment(environment(run)["overrides"]))
        except (UserError, OSError) as error:
            seen[str(error).encode()] = f"<p>{escape(str(setting))}: not shown ({escape(str(error))})</p>"
            continue
        title = f"{setting}, seed {first.seed}"
        if counts is not None and counts.tobytes() not in seen and len(seen) < MOST_PARTITIONS:
            seen[counts.tobytes()] = _plot(title, plots.partition(counts))
    return "".join(seen.values())
