"""Turn Hydra's errors about a command line into one-line messages."""

import logging
import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import OmegaConf
from omegaconf.errors import GrammarParseError, OmegaConfBaseException
from yaml import YAMLError

from baselines.errors import UserError

from .overrides import CONF, SHARED

logger = logging.getLogger("flwr")


# A setting or an option that does not exist: what was probably meant.


WORD_TRANSLATIONS = {"clients": "nodes", "client": "node", "epochs": "local_epochs", "learning_rate": "lr"}
MAX_HINTS = 3


def find_nearest(name: str, value: str, error: Exception) -> str | None:
    """Return what was probably meant by an unknown setting; None if nothing is similar.

    An option of that name comes first (``optimizer=adam`` means ``client_optimizer=adam``), then a similar
    setting of the composed configuration, unless the error comes from another process and lacks it.

    Parameters
    ----------
    name, value : of the override
    error : Hydra's; its cause holds the configuration
    """
    if option := option_of(value, name):
        return option
    node = getattr(error.__cause__, "parent_node", None)
    if node is None:
        return None
    settings = [
        setting
        for setting in _names(OmegaConf.to_container(node._get_root()))
        if not name.startswith(f"{setting}.") and name != setting  # its own parents do not count
    ]
    within, dot, last = name.rpartition(".")
    for word in (last, WORD_TRANSLATIONS.get(last, last)):
        deeper = [one for one in settings if one.startswith(within + dot) and one.endswith(f".{word}")]
        if len(deeper) == 1:  # client.lr
            return deeper[0]
    siblings = [one.rpartition(".")[2] for one in settings if one.rpartition(".")[0] == within]
    same_words = [other for other in siblings if _shares_words(last, other)]
    near = (
        same_words if len(same_words) == 1 else get_close_matches(last, siblings, 1, 0.75)
    )  # num_rounds, rnds
    return within + dot + near[0] if near else next(iter(get_close_matches(name, settings, 1, 0.85)), None)


def option_of(value: str, name: str) -> str | None:
    """Return ``group=value`` for the groups that have an option of this name; empty or None for none.

    The group that ``name`` belongs to wins (``client.optimizer`` over ``server_optimizer``). Older names of
        options do not count. It is also None for more groups than ``MAX_HINTS``.
    """
    if not value.isidentifier() or value in SHARED:
        return None
    groups = [path.parent.name for path in sorted(CONF.glob(f"*/{value}.yaml")) if not is_older_name(path)]
    place = f"{name}.".replace(".", "_")  # client_optimizer lies at client.optimizer
    groups = [group for group in groups if place.startswith(f"{group}_")] or groups
    return " or ".join(f"{group}={value}" for group in groups) if len(groups) <= MAX_HINTS else None


def is_older_name(option: Path) -> bool:
    """Say whether an option only chooses another group's option."""
    settings = yaml.safe_load(option.read_text())
    chosen = settings.get("defaults", []) if isinstance(settings, dict) else []
    overrides = any(
        str(key).startswith("override ") for one in chosen if isinstance(one, dict) for key in one
    )
    return overrides and settings.keys() == {"defaults"}


def near_option(name: str, options: Iterable[str]) -> str | None:
    """Return the option most similar to a misspelt one; None if none is."""
    return next(iter(get_close_matches(name.rpartition("/")[2], [*options], 1, 0.7)), None)


def _shares_words(name: str, other: str) -> bool:
    """Say whether all words of one name, translated by ``WORD_TRANSLATIONS``, are in the other."""
    words = {WORD_TRANSLATIONS.get(word, word) for word in name.split("_")}
    others = set(other.split("_"))
    return words <= others or others <= words


def _names(settings: Any, within: str = "") -> Iterator[str]:
    """Yield the dotted names of all settings."""
    for key, value in settings.items():
        yield f"{within}{key}"
        if isinstance(value, dict):
            yield from _names(value, f"{within}{key}.")


# Hydra's messages on jobs, folders and plugins, in plainer words.


PLUGINS = ("joblib", "submitit", "optuna")  # extras with Hydra's launchers and sweepers


def extra_for(missing: str, expected: str) -> str:
    """Return advice on a missing option: install its plugin, or choose another."""
    if not missing.startswith("hydra/"):
        return expected
    for plugin in PLUGINS:
        if missing.rpartition("/")[2].startswith(plugin):  # as submitit_local, too
            return f"it comes with one of Hydra's plugins: pip install -e '.[{plugin}]'"
    return f"{expected}, or install Hydra's plugins: pip install -e '.[{','.join(PLUGINS)}]'"


def describe_mistake(error: Exception, overrides: Iterable[str] = ()) -> UserError:
    """Return a one-line error for what Hydra cannot read or does not know."""
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
        near = find_nearest(unknown[1], _value_of(unknown[1], overrides), error)
        hint = f"did you mean {near}?" if near else "python -m baselines.run --help shows all"
        return UserError(f"there is no setting {unknown[1]}: {hint}")
    if isinstance(error, OmegaConfBaseException):
        return describe_unresolved(error)
    if isinstance(error.__cause__, GrammarParseError):  # in a group's option, which Hydra does not name
        broken = [override for override in overrides if "${" in override]
        return UserError(f"cannot read {' or '.join(broken)}: {error.__cause__}; expected group=option")
    if isinstance(error, HydraException):
        return UserError(str(error))
    if unfit := [override for override in overrides if _is_no_option(override)]:
        group = unfit[0].partition("=")[0]
        return UserError(f"{unfit[0]} names no option: expected one of {', '.join(_options(group))}")
    return UserError(f"{error}, in: {' '.join(overrides)}")


def _value_of(key: str, overrides: Iterable[str]) -> str:
    """Return the value that an override gives a key, as text; empty if none does."""
    values = (
        override.partition("=")[2] for override in overrides if override.lstrip("+").startswith(f"{key}=")
    )
    return next(values, "")


def _is_no_option(override: str) -> bool:
    """Say whether an override gives a group a value that is not text, such as null or a number."""
    try:
        parsed = OverridesParser.create().parse_override(override)
        value: Any = parsed.value()
        named = all(isinstance(one, str) for one in (value if isinstance(value, list) else [value]))
        return (CONF / parsed.key_or_group).is_dir() and not named
    except (HydraException, ValueError):
        return False


def describe_unreadable(error: YAMLError) -> UserError:
    """Return in one line where a file is not YAML."""
    return UserError(f"not YAML: {' '.join(str(error).split())}")


def _options(missing: str, known: Iterable[str] | None = None) -> list[str]:
    """Return the options, or the ``known`` ones, of the ``conf`` folder in which an option was sought."""
    folder = CONF / missing
    while not folder.is_dir():
        folder = folder.parent
    names = known or (
        path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.yaml")
    )
    return [name for name in sorted(names) if Path(name).name not in SHARED]


# Once: a warning that is logged only the first time.


@cache
def warn_once(text: str) -> None:
    """Log a warning that has not been logged yet."""
    logger.warning(text)


def describe_unresolved(error: OmegaConfBaseException) -> UserError:
    """Return a one-line error for a reference that OmegaConf cannot resolve."""
    first = str(error).splitlines()[0]
    return UserError(f"{error.full_key} cannot be read: {first}" if error.full_key else first)
