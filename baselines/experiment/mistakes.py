"""Mistakes: what Hydra says of a command line that it cannot compose, in one line of ours."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf.errors import GrammarParseError, OmegaConfBaseException
from yaml import YAMLError  # type: ignore[import-untyped]

from baselines.errors import UserError

from . import ranges
from .hydra_errors import extra_for
from .misspelt import near_option, nearest
from .places import CONF, SHARED


def mistake(error: Exception, given: Iterable[str] = ()) -> UserError:
    """Return in one line what Hydra says in many of what it cannot read or does not know."""
    if several := re.match(r"Ambiguous value for argument '(.+)'\n", str(error)):
        return UserError(f"{several[1]} has several values: with -m each is a run of its own, in [] a list")
    if isinstance(error, OverrideParseException):
        expected = "expected key=value, and 'key=\"value\"' for a value with spaces or other signs"
        return UserError(f"cannot read {error.override}: {expected}")
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        missing = error.missing_cfg_file
        options = _options(missing, error.options)
        near = near_option(missing, options)
        hint = f"did you mean {near}? " if near else ""
        expected = extra_for(missing, f"expected one of {', '.join(options)}")
        return UserError(f"{missing} does not exist: {hint}{expected}")
    if unknown := re.match(r"Could not override '(.+?)'", str(error)):
        near = nearest(unknown[1], _value_of(unknown[1], given), error)
        hint = f"did you mean {near}?" if near else "python -m baselines.run --help shows all"
        return UserError(f"there is no setting {unknown[1]}: {hint}")
    if isinstance(error, OmegaConfBaseException):
        return ranges.unresolved(error)
    if isinstance(error.__cause__, GrammarParseError):  # of a group's option, which Hydra does not name
        broken = [override for override in given if "${" in override]
        return UserError(f"cannot read {' or '.join(broken)}: {error.__cause__}; expected group=option")
    if isinstance(error, HydraException):
        return UserError(str(error))
    if unfit := [override for override in given if _is_no_option(override)]:
        group = unfit[0].partition("=")[0]
        return UserError(f"{unfit[0]} names no option: expected one of {', '.join(_options(group))}")
    return UserError(f"{error}, in: {' '.join(given)}")


def _value_of(key: str, given: Iterable[str]) -> str:
    """Return what an override gives a key, as text; empty where none does."""
    values = (
        override.partition("=")[2] for override in given if override.lstrip("+").startswith(f"{key}=")
    )
    return next(values, "")


def _is_no_option(override: str) -> bool:
    """Say whether an override gives a group null or a number, or a list of those."""
    try:
        parsed = OverridesParser.create().parse_override(override)
        value: Any = parsed.value()
        named = all(isinstance(one, str) for one in (value if isinstance(value, list) else [value]))
        return (CONF / parsed.key_or_group).is_dir() and not named
    except (HydraException, ValueError):
        return False


def unreadable(error: YAMLError) -> UserError:
    """Return in one line where a file is not YAML."""
    return UserError(f"not YAML: {' '.join(str(error).split())}")


def _options(missing: str, known: Iterable[str] | None = None) -> list[str]:
    """Return what there is (or is ``known``) in the folder of ``conf`` that an option was looked for in."""
    folder = CONF / missing
    while not folder.is_dir():
        folder = folder.parent
    names = known or (
        path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.yaml")
    )
    return [name for name in sorted(names) if Path(name).name not in SHARED]
