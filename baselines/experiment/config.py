"""From an override string to a configuration, the same way in every process.

What crosses to another process is the list of overrides, as one string; each process composes the
configuration from the ``conf`` folder beside its own code.
"""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import RLock
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException, InstantiationException
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError  # type: ignore[import-untyped]

from baselines.errors import UserError

from . import argument_types, ranges, shadowed
from .build_errors import why
from .mistakes import mistake, unreadable
from .overrides import keyed
from .places import CONF

SEVERAL = ("corrections", "experiment", "logger")  # groups of which several options go together

_composing = RLock()  # Hydra's state is that of the process, which may submit several runs at once
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
    found = composed_unchecked(overrides)
    ranges.check(found.cfg)
    return found


@cache
def composed_unchecked(overrides: str) -> Composed:
    """Compose without looking at the values: nothing that the configuration names is imported."""
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
        raise mistake(error, overrides.split()) from error
    return Composed(cfg, options)


@contextmanager
def composing() -> Iterator[None]:
    """Let Hydra compose configurations from our folder, also inside ``@hydra.main``."""
    with _composing:
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


def build(node: Any, **arguments: Any) -> Any:
    """Instantiate a configuration node; a value out of range, or no class, is a one-line ``UserError``."""
    for mistaken in argument_types.wrong(node, given=set(arguments)):
        raise UserError(mistaken)
    try:
        return instantiate(node, **arguments, _convert_="all")
    except InstantiationException as error:
        raise UserError(why(error, node, arguments)) from error
