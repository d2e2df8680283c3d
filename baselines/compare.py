"""python -m baselines.compare FOLDER...: show the runs of a sweep as tables and a figure.

    python -m baselines.compare multirun/mine --paired fedavg

Runs that differ only in their seed share a line, with the mean and the standard deviation over seeds. "node
accuracy" is the last accuracy on the nodes' own test data, where nodes keep any. The table is also written
as Markdown beside the figure; --latex and --csv add .tex and .csv files.
"""

if not __package__:  # called by its file
    import by_file  # type: ignore[import-not-found]  # noqa: F401

import argparse
import sys
from pathlib import Path

from .errors import UserError
from .help import HelpParagraphs
from .reports import BANDS, WIDTHS, X_AXES


def main(arguments: list[str] | None = None) -> int:
    """Print the tables and draw the figure; return the exit status."""
    options = _parser().parse_args(arguments)
    try:
        from .reports.comparison import compare  # pandas and matplotlib take a second

        compare(options)
    except (UserError, OSError) as error:  # OSError: where the figure cannot be written
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m baselines.compare", description=__doc__, formatter_class=HelpParagraphs
    )
    add = parser.add_argument
    add("folders", nargs="+", type=Path, help="run folders, or folders of run folders")
    metric_help = "what to show: mae, node-test/accuracy; may come several times (default: the test set's)"
    add("--metric", action="append", default=[], metavar="NAME", help=metric_help)
    add("--best", type=int, metavar="N", help="only the N best settings; of panels by average rank")
    falls = "less of this metric is better, where its name does not say so (docs/results.md)"
    add("--lower", action="append", default=[], metavar="NAME", help=falls)
    reached = "add the rounds until the first metric reaches it"
    add("--rounds-to", type=float, metavar="TARGET", help=reached)
    add(
        "--paired",
        metavar="BASELINE",
        help="compare seed by seed with fedavg, mask=none, or one line by its name: interval and t-test",
    )
    panels_help = "show this setting's values, as dataset, side by side: plots, columns and an average rank"
    add("--panels", metavar="SETTING", help=panels_help)
    renames = "rename a setting, or a part of its name; nothing after = leaves it out"
    add("--label", action="append", default=[], metavar="OLD=NEW", help=renames)
    add("--names", type=Path, metavar="FILE", help="rename by a YAML file with lines OLD: NEW")
    first = "show this setting first, by its name or a part of it; may come several times"
    add("--order", action="append", default=[], metavar="NAME", help=first)
    axes = "horizontal axis (default: round); of several the figure has the first, the page all"
    add("--x", action="append", choices=X_AXES, default=[], help=axes)
    bands = "standard deviation, 95 %% interval of the mean, all seeds, or none (default: std)"
    add("--band", choices=BANDS, default="std", help=bands)
    limits = "limits of the first metric's axis; accuracies in per cent"
    add("--ylim", type=float, nargs=2, metavar=("LOW", "HIGH"), help=limits)
    add("--figure", type=Path, help="where to draw (default: comparison.png beside)")
    add("--width", choices=list(WIDTHS), help="draw for a paper, as wide as its column or its page")
    add("--latex", action="store_true", help="write the tables beside the figure for LaTeX, too")
    add("--csv", action="store_true", help="write the numbers beside the figure, unrounded")
    add("--html", type=Path, metavar="PAGE", help="write one page for a browser with all of it")
    assets = "write the page's library beside it, as plotly.min.js, instead of into it"
    add("--html-assets", action="store_true", help=assets)
    return parser


if __name__ == "__main__":
    sys.exit(main())
