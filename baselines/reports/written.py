"""Tables written for others: Markdown, LaTeX and CSV."""

import re
from pathlib import Path

import pandas as pd

from .summary import Column

ESCAPES = {
    "\\": r"\textbackslash{}",
    **{sign: "\\" + sign for sign in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "<": "$<$",
    ">": "$>$",
}
MINUS = re.compile(r"(?<= )-(?= )|(?<![\w.-])-(?=\d)")  # of a difference or a number; others are hyphens


def latex(table: pd.DataFrame, caption: str, label: str, found: list[Column] | None = None) -> str:
    r"""Return a table of texts for LaTeX with \usepackage{booktabs}; the best of each column is bold."""
    best = {column.heading: column.best() for column in found or []}
    headings = [str(heading) for heading in table]
    rows = []
    for values in table.to_numpy().tolist():
        cells = [
            rf"\textbf{{{_tex(text)}}}" if text == best.get(heading) else _tex(text)
            for heading, text in zip(headings, values, strict=True)
        ]
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


def write(target: Path, text: str) -> None:
    """Write a file, and the folder that it is in."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")


def _tex(text: str) -> str:
    escaped = "".join(ESCAPES.get(sign, sign) for sign in text)
    return MINUS.sub("$-$", escaped)
