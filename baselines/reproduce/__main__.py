"""python -m baselines.reproduce PAPER TABLE: run a paper's table, and write our numbers beside the paper's.

    python -m baselines.reproduce weight_erosion table2 --where num_nodes=10 --seeds 0,1 --jobs 2
    python -m baselines.reproduce gma table4_4 --scale small dataset.load.augment=null
    python -m baselines.reproduce gma table4_4 --dry-run
    python -m baselines.reproduce gma table4_4 --budget 40m device=auto   # the most informative runs first
    python -m baselines.reproduce gma table4_4 --export runs.tar          # for --collect runs.tar elsewhere
    python -m baselines.reproduce                                # which papers and tables there are
    python -m baselines.reproduce --overview                     # renew every page and figure

Start it again to continue: finished runs are not run twice, and an interrupted run continues from
its last checkpoint. The results go to baselines/papers/PAPER/ours/TABLE.csv, .md and .png; those of
--scale smoke, which only show that everything works, to OUTPUT/smoke. A number of another setting than the
paper's, by a scale or by overrides, is labelled wherever it stands and gives way to one of the paper's;
those of further settings have a table of their own.

Exit status: 0 when all is there, 1 when a run failed or lacks its data, 2 after a user's mistake (or where
no run has its data), 130 after Ctrl-C.
"""

import sys

from baselines.errors import UserError

from .options import parser


def main(arguments: list[str] | None = None) -> int:
    """Do what the command line asks for; return the exit status."""
    options = parser(__doc__ or "").parse_intermixed_args(arguments)
    try:
        from .command import reproduce  # pandas and torch take seconds

        return reproduce(options)
    except (UserError, OSError) as error:  # OSError: where nothing can be written
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        goes_on = "runs the finished ones again too" if options.rerun else "continues"
        print(f"interrupted: the same command {goes_on}", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
