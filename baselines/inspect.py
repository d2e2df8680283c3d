"""python -m baselines.inspect: see a partition or a model before training.

    python -m baselines.inspect partitioner=dominant_labels dataset=mnist
    python -m baselines.inspect model=cnn6 dataset=mnist

With partitioner= it shows how many examples of each label every node holds, as a table and a figure. With
model= it shows the layers and what they cost. Without either it shows both. It takes all settings of
baselines.run. Exit status: 0, or 2 after a user's mistake.
"""

if not __package__:  # called by its file, or instead of Python's own inspect by python baselines/run.py
    import by_file  # type: ignore[import-not-found]  # noqa: F401

import argparse
import sys
from pathlib import Path

from .errors import UserError
from .experiment.overrides import add_config_dir, with_config_dir
from .help import HelpParagraphs


def main(arguments: list[str] | None = None) -> int:
    """Show the partition or model; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m baselines.inspect",
        description=__doc__,
        formatter_class=HelpParagraphs,
    )
    parser.add_argument("overrides", nargs="*", help="settings, as for baselines.run")
    add_config_dir(parser)
    figure = Path("outputs", "partition.png")
    parser.add_argument("--figure", type=Path, default=figure, help=f"where to draw (default: {figure})")
    options = parser.parse_intermixed_args(arguments)
    try:
        from .reports.inspection import show  # torch takes a second

        show(with_config_dir(options.config_dir, options.overrides), options.figure)
    except (UserError, OSError) as error:  # OSError: where the figure cannot be written
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
