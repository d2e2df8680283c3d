"""From an override string to a configuration, the same way in every process.

What crosses to another process is the list of overrides, as one string; each process composes the
configuration from the ``conf`` folder beside its own code.
"""

import re
import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import (
    HydraException,
    InstantiationException,
    MissingConfigException,
    OverrideParseException,
)
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import GrammarParseError, OmegaConfBaseException
from yaml import YAMLError  # type: ignore[import-untyped]

from baselines.errors import UserError

from . import argument_types, ranges, shadowed
from .build_errors import why
from .hydra_errors import extra_for
from .misspelt import nearest
from .overrides import keyed

ROOT = Path(__file__).resolve().parents[2]
CONF = ROOT / "conf"
SEVERAL = ("corrections", "experiment", "logger")  # groups of which several options go together
SHARED = ("base", "common")  # templates that options are made of, not options themselves

_taken: dict[str, DictConfig] = {}  # configurations that another process has composed


def take(overrides: str, text: str) -> None:
    """Let an override string stand for a configuration that another process has composed."""
    cfg = OmegaConf.create(text)
    assert isinstance(cfg, DictConfig)
    _taken[overrides] = cfg


def text(overrides: str) -> str:
    """Return a configuration for :func:`take`; what it reads from the environment is read there."""
    return OmegaConf.to_yaml(load(overrides), resolve=False)


@dataclass(frozen=True)
class Composed:
    """A configuration, and what Hydra took in each group: an option, several, or None."""

    cfg: DictConfig
    options: dict[str, Any]


def load(overrides: str) -> DictConfig:
    """Return the configuration of a shell-quoted override string.

    Raises
    ------
    UserError : for an unknown, deleted or empty group, an unknown option or key, a value out of range
    """
    return _taken[overrides] if overrides in _taken else composed(overrides).cfg


@cache
def composed(overrides: str) -> Composed:
    """Compose the configuration of an override string; :func:`load` says what it raises."""
    try:
        with composing():
            asked = [_real(override) for override in _kept(keyed(shlex.split(overrides)))]
            cfg = compose("config", overrides=asked, return_hydra_config=True)
            shadowed.check(asked, cfg.hydra.runtime.config_sources, CONF)
            options: Any = OmegaConf.to_container(cfg.hydra.runtime.choices)
            with open_dict(cfg):
                del cfg["hydra"]
            checked = [_must_exist(override, cfg) for override in asked]
            if checked != asked:
                compose("config", overrides=checked)
    except (HydraException, OmegaConfBaseException) as error:
        raise mistake(error, shlex.split(overrides)) from error
    except YAMLError as error:
        raise unreadable(error) from error
    except (ValueError, TypeError) as error:  # strategy=null, strategy=[1], or a quote that is not closed
        raise UserError(f"{error}, in: {overrides}") from error
    ranges.check(cfg)
    return Composed(cfg, options)


@contextmanager
def composing() -> Iterator[None]:
    """Let Hydra compose configurations from our folder, also inside ``@hydra.main``."""
    hydra = GlobalHydra.instance()
    outer = hydra.hydra
    hydra.clear()
    try:
        with initialize_config_dir(config_dir=str(CONF), version_base="1.3"):
            yield
    finally:
        hydra.hydra = outer


def _kept(overrides: list[str]) -> list[str]:
    """Refuse to delete a whole group or setting (Hydra's ``~client``): every run reads all of them."""
    for override in overrides:
        key, _, _ = override.removeprefix("~").partition("=")
        if override.startswith("~") and "." not in key:
            raise UserError(
                f"{override} deletes a setting that every run needs: choose another value, {key}=..."
            )
    return overrides


def _real(override: str) -> str:
    """Refuse a template (``strategy=base``), several options where one sets what another has set, and a
    search path that does not exist.
    """
    key, _, value = override.lstrip("+").partition("=")
    if (CONF / key).is_dir() and value.startswith("[") and "," in value and key not in SEVERAL:
        raise UserError(f"{override}: the last option would overwrite the others: choose one, {key}=...")
    if (CONF / key).is_dir() and value == "base":
        raise UserError(f"{override} is an internal template: choose another option")
    if key == "hydra.searchpath":
        paths: Any = OverridesParser.create().parse_override(override).value()
        for path in paths if isinstance(paths, list) else [paths]:
            folder = str(path).removeprefix("file://")
            if not folder.startswith("pkg://") and not Path(folder).is_dir():
                raise UserError(f"hydra.searchpath: there is no folder {folder}")
    return override


def _must_exist(override: str, cfg: DictConfig) -> str:
    """Return what adds a key (Hydra's ``+key=value``) as a plain override, which Hydra refuses if new.

    Not so an argument of a part, which the part refuses itself, a group, and Hydra's own settings.
    """
    plain = override.lstrip("+")
    key = plain.partition("=")[0]
    path = key.split(".")
    within = [OmegaConf.select(cfg, ".".join(path[:depth])) for depth in range(1, len(path) + 1)]
    argument = any(isinstance(node, DictConfig) and "_target_" in node for node in within)
    group = "@" in key or (CONF / key).is_dir()
    return override if argument or group or path[0] == "hydra" else plain


def mistake(error: Exception, given: Iterable[str] = ()) -> UserError:
    """Return in one line what Hydra says in many of what it cannot read or does not know."""
    if isinstance(error, OverrideParseException):
        expected = "expected key=value, and 'key=\"value\"' for a value with spaces or other signs"
        return UserError(f"cannot read {error.override}: {expected}")
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        missing = error.missing_cfg_file
        names = [name for name in error.options or _options(missing) if Path(name).name not in SHARED]
        expected = f"expected one of {', '.join(names)}"
        return UserError(f"{missing} does not exist: {extra_for(missing, expected)}")
    if unknown := re.match(r"Could not override '(.+?)'", str(error)):
        near = nearest(unknown[1], error)
        hint = f"did you mean {near}?" if near else "python -m baselines.run --help shows all"
        return UserError(f"there is no setting {unknown[1]}: {hint}")
    if isinstance(error, OmegaConfBaseException):
        return ranges.unresolved(error)
    if isinstance(error.__cause__, GrammarParseError):  # of a group's option, which Hydra does not name
        broken = [override for override in given if "${" in override]
        return UserError(f"cannot read {' or '.join(broken)}: {error.__cause__}; expected group=option")
    return UserError(str(error))


def unreadable(error: YAMLError) -> UserError:
    """Return in one line where a file is not YAML."""
    return UserError(f"not YAML: {' '.join(str(error).split())}")


def _options(missing: str) -> list[str]:
    """Return what there is in the folder of ``conf`` that an option was looked for in."""
    folder = CONF / missing
    while not folder.is_dir():
        folder = folder.parent
    return sorted(path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.yaml"))


def build(node: Any, **arguments: Any) -> Any:
    """Instantiate a configuration node; a value out of range, or no class, is a one-line ``UserError``."""
    for mistaken in argument_types.wrong(node, given=set(arguments)):
        raise UserError(mistaken)
    try:
        return instantiate(node, **arguments, _convert_="all")
    except InstantiationException as error:
        raise UserError(why(error, node, arguments)) from error
