"""The overrides of one run, drawn at random from the tree of conf/: valid, nearly valid, wrong."""

from dataclasses import dataclass
from random import Random
from typing import Any

from helpers.fuzz.conf_tree import GROUPS, default_options, options, settings_of, top_level
from helpers.fuzz.drawn_values import HUGE, SYNTAX, WORDS, bad, good, is_huge, of_another_kind

TINY = {"rounds": "1", "num_nodes": "3", "model": "softmax"}  # where nothing else is drawn
OF_SOME = {
    "grouping": ("selective",),
    "staleness": ("fedasync", "fedbuff"),
}  # groups that some strategies read
KEPT = ("data_root", "debug", "resume", "threads")  # debug=true asks for the traceback

# Written without a fraction in conf/, and may have one.
FRACTIONS_TOO = {
    "timeout",
    "start_timeout",
    "client_cpus",
    "client_gpus",
    "node_test_fraction",
    "node_turn",
}


@dataclass(frozen=True)
class Case:
    """What is put on the command line, and what is known of it beforehand.

    Parameters
    ----------
    overrides : in the order of the command line
    runs : whether to run it; else it is only composed, built and checked, for it could run for ever
    refused : the override that no part can take; None where the outcome is open
    """

    overrides: tuple[str, ...]
    runs: bool = True
    refused: str | None = None


def draw(random: Random) -> Case:
    """Return a case."""
    chosen = _options(random)
    overrides = [f"{group}={option}" for group, option in chosen.items()]
    refused, huge = None, False
    wrong = random.choice((0, 0, 1, 1, 1, 2))
    for place in range(random.randrange(wrong, 4)):
        if place < wrong and random.random() < 0.3:
            overrides.append(_misplaced(random, chosen))
            huge |= is_huge(overrides[-1].partition("=")[2])
            continue
        key, default = random.choice(_settings(chosen))
        if any(override.partition("=")[0] == key for override in overrides):
            continue
        value = (bad if place < wrong else good)(random, key, default)
        overrides.append(f"{key}={value}")
        huge |= is_huge(value)
        if key.rpartition(".")[2] in FRACTIONS_TOO:
            default = float(default)
        if place < wrong and of_another_kind(default, value) and _is_read(key, chosen):
            refused = overrides[-1]
    if random.random() < 0.1:
        random.shuffle(overrides)
    if refused and any(_replaces(override, refused) for override in overrides):
        refused = None
    return Case(_tiny(overrides), not huge, refused)


def _replaces(override: str, refused: str) -> bool:
    """Say whether an override gives the whole part that another gives a value of."""
    key = override.lstrip("+~").partition("=")[0]
    return refused.startswith(f"{key}.") and "." in key


def _options(random: Random) -> dict[str, str]:
    """Return an option for some groups; the data are mostly those that need no files."""
    groups = random.sample(GROUPS, random.choice((0, 1, 1, 2, 3)))
    chosen = {group: random.choice(options(group)) for group in groups if group != "dataset"}
    if random.random() < 0.25:
        chosen["dataset"] = random.choice((*["synthetic"] * 3, *options("dataset")))
    return chosen


def _settings(chosen: dict[str, str]) -> list[tuple[str, Any]]:
    """Return every setting of a configuration with these options, and its default."""
    settings = {key: value for key, value in top_level().items() if key not in KEPT}
    for group, option in (default_options() | chosen).items():
        if option is not None:
            settings |= settings_of(group, option)
    return list(settings.items())


def _is_read(key: str, chosen: dict[str, str]) -> bool:
    """Say whether a run with these options reads the setting: some groups are those of some strategies."""
    readers = OF_SOME.get(key.partition(".")[0])
    return readers is None or chosen.get("strategy") in readers


def _misplaced(random: Random, chosen: dict[str, str]) -> str:
    """Return an override of something that is not there, or is no value, or cannot be left out."""
    group = random.choice(GROUPS)
    other = random.choice(options(group))
    key, default = random.choice([*settings_of(group, other).items()] or [(group, None)])
    settings = _settings(chosen)
    known = random.choice(settings)[0]
    value = good(random, key, default)
    forms = (
        f"{key}={value}",  # of an option that was perhaps not chosen
        f"~{known}",
        f"~{group}",
        f"+{known}={value}",
        f"++{known}={random.choice(WORDS)}",
        f"+{group}.unknown={value}",
        f"{known}.deeper={value}",
        f"{known}x={value}",
        f"{known[:-1]}={value}",
        f"{group}={random.choice((*WORDS, *HUGE, *SYNTAX, 'null', '[]', '???', 'base', 'true'))}",
        f"{group}=[{other},{random.choice(options(group))}]",
        f"+{group}={other}",
        f"{group}@strategy={other}",
        f"{random.choice(GROUPS)}/{other}={other}",
        known,
        f"={value}",
        random.choice(WORDS),
        f"{known.upper()}={value}",
        f"{known.replace('.', '..')}={value}",
    )
    return random.choice(forms)


def _tiny(overrides: list[str]) -> tuple[str, ...]:
    """Add what makes a run small, where its size is not drawn."""
    given = {override.lstrip("+~").partition("=")[0] for override in overrides}
    if any(key == "dataset" or key.startswith("model") for key in given):
        given.add("model")
    return (*(f"{key}={value}" for key, value in TINY.items() if key not in given), *overrides)
