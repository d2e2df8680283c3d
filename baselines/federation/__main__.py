r"""python -m baselines.federation: set up and run a federation of sites with data of their own.

It adds to Flower's own programs what sites have to agree on, check and record. Agree on the data, and see at
a site what an experiment would do and what has been asked of it:

    python -m baselines.federation schema /data/north --out schema.yaml
    python -m baselines.federation check --data /data/south dataset=local \
        dataset.schema=schema.yaml
    python -m baselines.federation audit site.yaml

Make certificates, keys and start commands; let sites in, and shut revoked ones out:

    python -m baselines.federation provision federation.yaml
    python -m baselines.federation register federation.yaml

Run an experiment, and describe the trained model:

    python -m baselines.federation submit LINK dataset=local \
        dataset.schema=schema.yaml num_nodes=3
    python -m baselines.federation card outputs/first --out CARD.md

Exit status: 0; 1 when a run failed; 2 after a user's mistake; 130 after Ctrl-C.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from baselines.errors import DataError, RunFailed, UserError
from baselines.experiment.overrides import add_config_dir, with_config_dir
from baselines.help import HelpParagraphs
from baselines.site.policy import Policy
from baselines.site.policy import read as read_site_file
from strategies.shared import protocol

from . import card, check, provision, register, submit
from .agreed import write_schema
from .card import show_audit


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line's request; return the exit status."""
    options = _read(sys.argv[1:] if arguments is None else arguments)
    try:
        options.do(options)
    except UserError as error:
        public = error.public if isinstance(error, DataError) and options.do is _checked else None
        return _print_error(error, 2, public)
    except OSError as error:  # where nothing can be read or written
        return _print_error(error, 2)
    except RunFailed as error:
        return _print_error(error, 1)
    except KeyboardInterrupt:
        return _print_error("interrupted", 130)
    return 0


def _print_error(error: object, status: int, public: str | None = None) -> int:
    print(f"error: {error}", file=sys.stderr)
    if public is not None:
        print(f"the server sees: {public}", file=sys.stderr)
    return status


def _read(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line, also with options between arguments, which argparse refuses in subcommands."""
    parser = _parser()
    command = parser.get_default("commands").get(next(iter(arguments), ""))
    options: argparse.Namespace = (
        command.parse_intermixed_args(list(arguments[1:])) if command else parser.parse_args(arguments)
    )
    return options


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m baselines.federation",
        description=__doc__,
        formatter_class=HelpParagraphs,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    parser.set_defaults(commands=commands.choices)
    for name, (meaning, add_arguments) in COMMANDS.items():
        add_arguments(commands.add_parser(name, help=meaning, description=f"{meaning.capitalize()}."))
    return parser


def _card(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, help="the run's folder")
    parser.add_argument("--out", type=Path, help="where to write; without it the card is printed")
    parser.set_defaults(do=lambda options: card.write(options.run, options.out))


def _provision(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("federation", type=Path, help="who takes part, and where: federation.yaml")
    parser.set_defaults(do=lambda options: provision.provision(options.federation))


def _register(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("federation", type=Path, help="who takes part, and where: federation.yaml")
    parser.set_defaults(do=lambda options: register.register(options.federation))


def _submit(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("link", help="the SuperLink's name in Flower's config.toml")
    parser.add_argument(
        "--output", default="", help="folder for the results, below outputs/ (default: the run's id)"
    )
    parser.add_argument("overrides", nargs="*", help="the experiment, as for baselines.run")
    parser.set_defaults(do=lambda options: submit.submit(options.link, options.overrides, options.output))


def _schema(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "data", type=Path, help="a folder of images by class, a .csv, .tsv, .parquet or .npz file"
    )
    parser.add_argument("--label", help="of a table: the column with the labels")
    parser.add_argument(
        "--columns",
        metavar="A,B,C",
        type=lambda text: [name.strip() for name in text.split(",")],
        help="of a table: the model's inputs, in this order (default: all but the label, ids too)",
    )
    parser.add_argument("--out", type=Path, default=Path("schema.yaml"), help="default: schema.yaml")
    parser.set_defaults(
        do=lambda options: write_schema(options.data, options.label, options.columns, options.out)
    )


def _check(parser: argparse.ArgumentParser) -> None:
    place = parser.add_mutually_exclusive_group(required=True)
    place.add_argument(
        "--site-file",
        type=Path,
        help="the site's settings, site.yaml; without an experiment only this file is shown",
    )
    place.add_argument("--data", type=Path, help="the site's data, if it has no site.yaml yet")
    parser.add_argument("--site", help="the site's name; with the seed it decides which rows are held out")
    parser.add_argument(
        "--held-out", type=Path, metavar="FILE", help="write the rows that are held out: .csv or .npz"
    )
    parser.add_argument(
        "--privacy",
        choices=[protocol.CENTRAL, protocol.LOCAL],
        help="with --data: the privacy that the site demands",
    )
    parser.add_argument(
        "--min-noise", type=float, help="with --privacy: the smallest noise multiplier it accepts"
    )
    parser.add_argument("overrides", nargs="*", help="the experiment, as for baselines.run")
    add_config_dir(parser)
    parser.set_defaults(do=_checked)


def _checked(options: argparse.Namespace) -> None:
    if options.site_file:
        policy = read_site_file(options.site_file)
        if not options.overrides:
            check.show_file(policy)
            return
    else:
        policy = Policy(data=str(options.data), privacy=options.privacy, min_noise=options.min_noise)
    if options.held_out and not options.site:
        raise UserError("--held-out: give the site's name, --site NAME; it decides which rows are held out")
    overrides = with_config_dir(options.config_dir, options.overrides)
    check.show(policy, options.site or "here", overrides, options.held_out)


def _audit(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("site_file", type=Path, help="the site's file, site.yaml")
    parser.add_argument("--last", type=int, default=20, help="how many messages; default: 20")
    parser.set_defaults(do=lambda options: show_audit(options.site_file, options.last))


COMMANDS = {
    "schema": ("write the schema of a site's data, on which all sites agree", _schema),
    "check": ("show what an experiment would do with a site's data; nothing is sent", _check),
    "audit": ("show what has been asked of a site, and what has left it", _audit),
    "provision": ("make certificates, keys and start commands for a federation", _provision),
    "register": ("let new sites in, and shut revoked ones out", _register),
    "submit": ("run an experiment with all sites, and return its exit status", _submit),
    "card": ("write a model card of a run, from its files", _card),
}

if __name__ == "__main__":
    sys.exit(main())
