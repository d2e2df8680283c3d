"""What a page says besides its plots: tables, settings, how the runs went, with what they were made."""

import os
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd

from baselines import results
from baselines.engine.environment import environment
from baselines.reports.measurements import examined


def table(rows: pd.DataFrame) -> str:
    """Return a table of texts that a click on a heading sorts."""
    return (
        f'<div class="wide">{rows.to_html(index=False, border=0, classes="sortable", na_rep="-")}</div>\n'
    )


def settings(frame: pd.DataFrame) -> str:
    """Return in what the settings differ, and what all runs of the command line share."""
    told = frame[["setting", *results.settings(frame)]].drop_duplicates("setting")
    same = [key for key in results.settings(frame) if len(set(told[key].astype(str))) == 1]
    shared = ", ".join(f"{key}={told[key].iloc[0]}" for key in same)
    differing = told.drop(columns=same).astype(str)
    text = table(differing) if len(differing.columns) > 1 else ""
    if shared:
        text += f"<p>The same in all: {escape(shared)}.</p>\n"
    run = Path(frame.run.iloc[0])
    config = (run / "config.yaml").read_text(encoding="utf-8") if (run / "config.yaml").exists() else ""
    return text + _folded(f"The whole configuration of the first run, {run.name}", config)


def runs(frame: pd.DataFrame, folders: list[Path]) -> str:
    """Return how each run went, and which could not be read."""
    failed = frame[(frame.split == "train") & (frame.metric == "failed")].groupby("run").value.sum()
    rows = []
    base = os.path.commonpath([folder.resolve() for folder in folders])
    ordered = frame.sort_values("seed", kind="stable")
    for (setting, seed, run), own in ordered.groupby(["setting", "seed", "run"], sort=False):
        told = environment(Path(str(run)))
        rows.append(
            {
                "setting": setting,
                "seed": seed,
                "rounds": own["round"].max(),
                "ended": own.status.iloc[0] if "status" in own else told.get("status", "-"),
                "seconds": f"{told['wall_seconds']:.0f}" if "wall_seconds" in told else "-",
                "replies that failed": f"{failed.get(run, 0):.0f}",
                "run": _below(base, str(run)),
            }
        )
    left_out = [
        f"<li>{escape(_below(base, str(run)))}: {escape(reason)}</li>"
        for run, reason in examined(folders)[1].items()
    ]
    named = f"<p>Left out:</p><ul>{''.join(left_out)}</ul>\n" if left_out else ""
    return table(pd.DataFrame(rows)) + named


def surroundings(frame: pd.DataFrame) -> str:
    """Return the commit, the versions and the machines; where runs differ, all that there were."""
    found: dict[str, dict[str, None]] = {}
    for run in frame.run.unique():
        told = environment(Path(run))
        parts: dict[str, Any] = {"commit": told.get("git_commit")}
        parts |= told.get("versions") or {}
        parts |= told.get("hardware") or {}
        for key, value in parts.items():
            if value is not None:
                found.setdefault(key, {})[str(value)] = None
    rows = [{"what": key, "value": "; ".join(values)} for key, values in found.items()]
    return f'<div class="wide">{pd.DataFrame(rows).to_html(index=False, border=0, header=False)}</div>\n'


def _below(base: str, run: str) -> str:
    """Return a run's folder as the sweep has it, not where it lies on this machine."""
    folder = Path(run).resolve()
    return folder.name if folder == Path(base) else os.path.relpath(folder, base)


def _folded(title: str, text: str) -> str:
    if not text:
        return ""
    return f"<details><summary>{escape(title)}</summary><pre>{escape(text)}</pre></details>\n"
