"""Values for a setting, drawn at random: good ones, near misses and wrong ones, as Hydra reads them."""

import math
from random import Random
from typing import Any

from helpers.fuzz.conf_tree import top_level

HUGE = ("1000000", "1e30", "-1e30", "1e400", "9223372036854775808", "1" + "0" * 400, "inf", "-inf")
NEAR = (
    "-1",
    "0",
    "-0.0",
    "1e-300",
    "1.0",
    "1.5",
    "2.0000000001",
    "1e0",
    "'3'",
    "True",
    "FALSE",
    "+1",
    "0x10",
)
WORDS = ("abc", "flase", "none", "''", "'two words'", "ünïcode", "yes", "auto", "cpu", "a/b", "-")
LISTS = ("[]", "[1]", "[0.1]", "[1,2,3,4]", "[[1,2],[3]]", "[null]", "[abc,true]", "[false]")
MAPPINGS = ("{}", "{a:1}", "{_target_:no.such.Class}", "{_target_:strategies.Uniform}", "{lr:0.1}")
ODD = (
    "null",
    "true",
    "false",
    "nan",
    "???",
    "'${nowhere}'",
    "'${seed}'",
    "'${rounds}'",
    "'${oc.env:NO_SUCH}'",
)
SYNTAX = (
    "1,2",
    "choice(1,2)",
    "range(1,3)",
    "[1,2",
    "{a:",
    "'open",
    "a=b",
    "$",
    "\\",
    "",
    "(",
    "int(3)",
    "'${'",
)
TARGETS = (
    "strategies.FedAvg",
    "strategies.Uniform",
    "clients.Exponential",
    "torch.optim.SGD",
    "torch.nn.Linear",
    "builtins.dict",
    "no.such.Class",
    "strategies.NoSuch",
    "strategies",
    "abc",
)


def good(random: Random, key: str, default: Any) -> str:
    """Return a value of the kind that the setting has, mostly within its range."""
    if isinstance(default, bool):
        return random.choice(("true", "false"))
    if isinstance(default, int):
        return str(random.choice((default, default, default + 1, 1, 2, 3)))
    if isinstance(default, float):
        return repr(random.choice((default, default / 2, 0.5, 0.1, 1e-3)))
    return written(default)


def bad(random: Random, key: str, default: Any) -> str:
    """Return a value that is a near miss, or of another kind, or no value at all."""
    if key.endswith("_target_") and random.random() < 0.7:
        return random.choice(TARGETS)
    kinds = (NEAR, NEAR, HUGE, WORDS, LISTS, MAPPINGS, ODD, ODD, SYNTAX)
    return random.choice(random.choice(kinds))


def written(value: Any) -> str:
    """Return a value of a YAML file as it is written on a command line."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{written(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(written, value)) + "]"
    text = str(value)
    return f"'{text}'" if isinstance(value, str) and any(c in text for c in "${}:,[] ") else text


def of_another_kind(default: Any, value: str) -> bool:
    """Say whether a value is surely no value for a setting with this default: it must be refused."""
    default = _referred(default)
    if isinstance(default, bool):
        return value in (*NEAR[:9], *WORDS, *LISTS, *MAPPINGS, "null", "nan")
    if isinstance(default, int):
        return value in (*WORDS, *LISTS, *MAPPINGS, "true", "false", "nan", "1.5", "2.0000000001", "'3'")
    if isinstance(default, float):
        return value in (*WORDS, *LISTS, *MAPPINGS, "true", "false", "nan", "'3'")
    if isinstance(default, dict):
        return value in (*NEAR, *WORDS, *LISTS, "true", "nan")  # Hydra merges {}: nothing changes
    return False


def is_huge(value: str) -> bool:
    """Say whether a value may make a run endless, or its numbers overflow."""
    if value in HUGE:
        return True
    try:
        size = abs(float(value))
        return not math.isfinite(size) or size > 100 or 0 < size < 1e-100
    except ValueError:
        return False


def _referred(default: Any) -> Any:
    """Return what a default such as ${seed} refers to."""
    if isinstance(default, str) and default.startswith("${") and default[2:-1] in top_level():
        return top_level()[default[2:-1]]
    return default
