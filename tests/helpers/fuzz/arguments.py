"""Arguments of compare, inspect, reproduce (that only shows commands), bench (that measures nothing)."""

import shlex
from collections.abc import Callable
from pathlib import Path
from random import Random
from unittest import mock

from baselines import compare, inspect
from baselines.bench import __main__ as bench
from baselines.reproduce import __main__ as reproduce
from baselines.reproduce import campaign, paper_tables
from baselines.reproduce.plan import SCALES
from helpers.fuzz.command import CheckedOnly, apart, ended
from helpers.fuzz.configurations import names_of
from helpers.fuzz.damaged_runs import original
from helpers.fuzz.drawn_overrides import draw
from helpers.fuzz.drawn_values import HUGE, NEAR, ODD, WORDS
from helpers.fuzz.verdict import Result, died, not_one_line

VALUES = (*WORDS, *NEAR, *HUGE, *ODD, "1,2", "0,1,x", "a=b", "=", "", "/no/such/folder", "/dev/null", ".")
Command = Callable[[list[str]], int]


def try_one(random: Random, folder: Path, repeat: str) -> Result:
    """Call one of the commands with drawn arguments and judge how it ended."""
    drawn = random.choice((_compare, _inspect, _reproduce, _bench))
    command, arguments, names = drawn(random, folder)
    with apart():
        outcome = ended(lambda: command(arguments))
    name = drawn.__name__.removeprefix("_")
    line = f"python -m baselines.{name} {shlex.join(arguments)}"
    fault = died(outcome) or (outcome.status == 2 and not_one_line(outcome, names)) or ""
    return Result(f"{name}: {'2, one line' if outcome.status == 2 else '0'}", fault, line)


def _compare(random: Random, folder: Path) -> tuple[Command, list[str], list[str]]:
    run = str(original("finished"))
    folders = [
        random.choice((run, run, run, f"{run}/checkpoint", *VALUES)) for _ in range(random.randrange(4))
    ]
    options = {
        "--figure": ("x.png", "x.abc", "no/such/x.png", *VALUES),
        "--best": ("1", "2", *VALUES),
        "--metric": ("accuracy", "test/loss", "node-test/accuracy", *VALUES),
        "--rounds-to": ("0.5", "nan", *VALUES),
        "--paired": ("fedavg", "mask=none", "no.such=1", *VALUES),
        "--label": ("all=mine", "a=b=c", *VALUES),
        "--x": ("seconds", "bytes", *VALUES),
        "--width": ("column", *VALUES),
    }
    given = [*_some(random, options), *random.sample(("--latex", "--csv"), random.randrange(3))]
    return compare.main, _mixed(random, folders, given), []


def _inspect(random: Random, folder: Path) -> tuple[Command, list[str], list[str]]:
    case = draw(random)
    while not case.runs or any("runtime" in override for override in case.overrides):
        case = draw(random)
    given = _some(random, {"--figure": ("x.png", *VALUES)}) if random.random() < 0.3 else []
    names = [] if given else names_of(case.overrides)
    overrides = [*case.overrides, f"data_root={folder}/data"]
    return inspect.main, _mixed(random, [o for o in overrides if not o.startswith("-")], given), names


def _reproduce(random: Random, folder: Path) -> tuple[Command, list[str], list[str]]:
    paper = random.choice((*paper_tables.papers(), *paper_tables.papers(), *VALUES))
    tables = [*paper_tables.tables(paper)] if paper in paper_tables.papers() else []
    table = random.choice((*tables, *tables, *VALUES))
    overrides = [*draw(random).overrides[-1:]] if random.random() < 0.3 else []
    options = {
        "--where": ("seed=0", "num_nodes=10", "no=1", *VALUES),
        "--seeds": ("0", "0,1", *VALUES),
        "--scale": (*SCALES, *SCALES, *VALUES),
        "--jobs": ("1", "2", *VALUES),
        "--output": (str(folder / "out"), *VALUES),
    }
    words = [paper, table, *overrides][: random.choice((0, 1, 2, 2, 2, 3))]
    return _run_dry, ["--dry-run", *_mixed(random, words, _some(random, options))], []


def _run_dry(arguments: list[str]) -> int:
    """Run reproduce up to where it would begin."""
    with mock.patch.object(campaign, "_announce", side_effect=CheckedOnly):
        return reproduce.main(arguments)


def _bench(random: Random, folder: Path) -> tuple[Command, list[str], list[str]]:
    names = [workload.name for workload in bench.WORKLOADS]
    words = [random.choice((*names, *names, *VALUES)) for _ in range(random.randrange(3))]
    options = {"--repeats": ("1", "2", *VALUES), "--output": (str(folder), *VALUES)}
    arguments = _mixed(random, words, _some(random, options)) + ["--peers"] * random.choice((0, 0, 1))
    return _unmeasured, arguments, []


def _unmeasured(arguments: list[str]) -> int:
    """Run bench up to its first measurement."""
    kinds = {type(workload) for workload in bench.WORKLOADS}
    patches = [mock.patch.object(kind, "measure", side_effect=CheckedOnly) for kind in kinds]
    for patch in patches:
        patch.start()
    try:
        return bench.main(arguments)
    finally:
        for patch in patches:
            patch.stop()


def _some(random: Random, options: dict[str, tuple[str, ...]]) -> list[str]:
    """Return some of the options with a value each, seldom an unknown one or one without its value."""
    chosen = random.sample([*options], random.choice((0, 0, 1, 1, 2)) % (len(options) + 1))
    given = [part for option in chosen for part in (option, random.choice(options[option]))]
    return given + random.choice(([],) * 12 + (["--unknown"], chosen[:1]))


def _mixed(random: Random, words: list[str], options: list[str]) -> list[str]:
    return [*options, *words] if random.random() < 0.5 else [*words, *options]
