"""From an override string to a configuration, the same way in every process.

What crosses to another process is the list of overrides, as one string; each process composes the
configuration from the ``conf`` folder beside its own code.
"""

import hashlib
import re
import shlex
from collections.abc import Iterator
from difflib import get_close_matches
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
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError  # type: ignore[import-untyped]

from baselines.errors import UserError

from . import argument_types

ROOT = Path(__file__).resolve().parents[2]
CONF = ROOT / "conf"
SPLITS = ("test", "node-test", "train")  # whose metrics a run writes
SHARED = ("base", "common")  # what options are made of, and no options themselves
EXTRAS = ", or install Hydra's plugins: pip install 'florilegium[joblib,submitit,optuna]'"


@cache
def load(overrides: str) -> DictConfig:
    """Compose the configuration of a shell-quoted override string.

    Raises
    ------
    UserError : for an unknown, deleted or empty group, an unknown option or key, a value out of range
    """
    hydra = GlobalHydra.instance()
    outer = hydra.hydra  # set inside @hydra.main
    hydra.clear()
    try:
        with initialize_config_dir(config_dir=str(CONF), version_base="1.3"):
            asked = [_real(override) for override in _kept(shlex.split(overrides))]
            cfg = compose("config", overrides=asked)
            checked = [_must_exist(override, cfg) for override in asked]
            if checked != asked:
                compose("config", overrides=checked)
    except (HydraException, OmegaConfBaseException) as error:
        raise mistake(error) from error
    except YAMLError as error:
        raise unreadable(error) from error
    except ValueError as error:  # strategy=null, or a quote that is not closed
        raise UserError(f"{error}, in: {overrides}") from error
    finally:
        hydra.hydra = outer
    _check_ranges(cfg)
    return cfg


def _kept(overrides: list[str]) -> list[str]:
    """Refuse to delete a whole group or setting (Hydra's ``~client``): every run reads all of them."""
    for override in overrides:
        key, _, _ = override.removeprefix("~").partition("=")
        if override.startswith("~") and "." not in key:
            raise UserError(f"{override} deletes what every run reads: choose another value, {key}=...")
    return overrides


def _real(override: str) -> str:
    """Refuse what options are made of (``strategy=base``) as an option, and a search path that is none."""
    key, _, value = override.lstrip("+").partition("=")
    if (CONF / key).is_dir() and value == "base":
        raise UserError(f"{override} is what options are made of: choose one of them")
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


def quoted(text: str) -> str:
    """Return what Hydra reads as this text, spaces and other signs included."""
    plain = re.fullmatch(r"[A-Za-z_./][A-Za-z0-9_./-]*", text)
    return text if plain else "'" + text.replace("'", r"\'") + "'"


def mistake(error: Exception) -> UserError:
    """Return in one line what Hydra says in many of what it cannot read or does not know."""
    if isinstance(error, OverrideParseException):
        expected = "expected key=value, and 'key=\"value\"' for a value with spaces or other signs"
        return UserError(f"cannot read {error.override}: {expected}")
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        missing = error.missing_cfg_file
        names = [name for name in error.options or _options(missing) if Path(name).name not in SHARED]
        more = EXTRAS if missing.startswith("hydra/") else ""
        return UserError(f"{missing} does not exist: expected one of {', '.join(names)}{more}")
    if unknown := re.match(r"Could not override '(.+?)'", str(error)):
        near = get_close_matches(unknown[1], list(_keys(OmegaConf.to_container(load("")))), n=1, cutoff=0.8)
        hint = f"did you mean {near[0]}?" if near else "python -m baselines.run --help shows all"
        return UserError(f"there is no setting {unknown[1]}: {hint}")
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


def _keys(settings: Any, within: str = "") -> Iterator[str]:
    """Yield the dotted names of all settings."""
    for key, value in settings.items():
        yield f"{within}{key}"
        if isinstance(value, dict):
            yield from _keys(value, f"{within}{key}.")


def flat(value: Any, prefix: str = "") -> dict[str, str]:
    """Return nested settings as {dotted key: text}."""
    if not isinstance(value, dict):
        return {prefix: str(value)}
    parts = (flat(item, f"{prefix}.{key}" if prefix else str(key)) for key, item in value.items())
    return {key: text for part in parts for key, text in part.items()}


def _check_ranges(cfg: DictConfig) -> None:
    """Refuse what no part of the experiment would refuse."""
    for key in ("rounds", "num_nodes", "threads", "evaluate_every"):
        if type(cfg[key]) is not int or cfg[key] < 1:
            raise UserError(f"{key}={cfg[key]} is out of range: expected a whole number above 0")
    for key in ("resume", "debug"):
        if type(cfg[key]) is not bool:
            raise UserError(f"{key}={cfg[key]} is out of range: expected true or false")
    fraction, timeout = cfg.node_test_fraction, cfg.timeout
    if type(fraction) not in (int, float) or not 0 <= fraction < 1:
        raise UserError(f"node_test_fraction={fraction} is out of range: expected in [0, 1)")
    if type(cfg.seed) is not int or cfg.seed < 0:
        raise UserError(f"seed={cfg.seed} is out of range: expected a whole number, 0 or above")
    if type(timeout) not in (int, float) or not timeout > 0:
        raise UserError(f"timeout={timeout} is out of range: expected seconds, above 0")
    split, _, metric = str(cfg.objective).partition("/")
    if split not in SPLITS or not metric:
        raise UserError(f"objective={cfg.objective} is unknown: expected split/metric, e.g. test/accuracy")


def build(node: Any, **arguments: Any) -> Any:
    """Instantiate a configuration node; a value out of range, or no class, is a one-line ``UserError``."""
    for mistaken in argument_types.wrong(node, given=set(arguments)):
        raise UserError(mistaken)
    try:
        return instantiate(node, **arguments, _convert_="all")
    except InstantiationException as error:
        cause: BaseException | None = error.__cause__
        while cause is not None:
            if isinstance(cause, ValueError | UserError):
                raise UserError(str(cause)) from error
            cause = cause.__cause__
        first = " ".join(str(error).partition(", set env var")[0].split())
        raise UserError(f"{first}{_cause(error)}") from error


def _cause(error: BaseException) -> str:
    """Return why, where a class could not be imported."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f": {error} (is its folder on PYTHONPATH?)" if isinstance(error, ImportError) else ""


@cache
def source_hash() -> str:
    """Return a hash of this installation's code and configuration: equal code, equal results."""
    digest = hashlib.sha256()
    suffixes = {"strategies": ".py", "clients": ".py", "baselines": ".py", "conf": ".yaml"}
    for folder, kind in suffixes.items():
        for path in sorted((ROOT / folder).rglob("*" + kind)):
            digest.update(path.relative_to(ROOT).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:16]
