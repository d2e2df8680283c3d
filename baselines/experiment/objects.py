"""Objects instead of options: a strategy, a part or a model's class, written as YAML.

Every process builds the object anew from that YAML, so Ray, ``resume`` and ``compare`` need no special
case.
"""

import os
import re
import sys
from contextlib import suppress
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import partial
from hashlib import sha256
from inspect import getsource, isclass, isfunction
from numbers import Number
from os import PathLike
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from baselines.errors import UserError
from strategies import PseudoGradientStrategy
from strategies.core.strategy import BaseStrategy

from . import config
from .overrides import CONF, quote
from .validation import takes_argument

NAME = "_name_"  # in an option: the name of its file
MAX_FOLDER_LENGTH = 120  # characters of a folder's name
KEY_OF_GROUP = {
    "client_optimizer": "client",  # where a group's option lies in the configuration, if not under the group's own name
    "schedule": "client.schedule",
    "personal": "client.personal",
    "corrections": "client.corrections",
}
BY_NAME = "run('corrections=[proximal,fedlc]')"
OF_CORRECTIONS = "a correction's class, or a functools.partial of it, as partial(Proximal, mu=0.1)"
NAMED = "{'weak': partial(Proximal, mu=0.1), 'strong': partial(Proximal, mu=1)}"
BASE: Any = OmegaConf.to_container(
    OmegaConf.load(CONF / "strategy" / "base.yaml")
)  # what the settings give
PARTS = [key for key in BASE if (CONF / key).is_dir()]
RUN_SETTINGS = [key for key, value in BASE.items() if str(value).startswith("${") and key not in PARTS]


def is_plain(value: object) -> bool:
    """Say whether a value can be written on the command line: a number, a text, a path, None."""
    return value is None or isinstance(value, str | Number | PathLike)


def write_plain(value: object) -> str:
    """Return a plain value as written on the command line; ambiguous texts are quoted."""
    if isinstance(value, str | PathLike):
        text = str(value)
        return quote(text) if re.search(r"[,()=:'\"\s]", text) and text[0] not in "[{$'\"" else text
    return {"None": "null", "True": "true", "False": "false"}.get(str(value), str(value))


def option_name(value: Any) -> str:
    """Return the name of an object's option: that of its class or function."""
    value = value.func if isinstance(value, partial) else value
    return str(value.__name__ if isclass(value) or isfunction(value) else type(value).__name__)


def name_folder(label: str, options: dict[str, Any], seed: int) -> str:
    """Return the name of a run's folder: its settings, and a hash if some are objects or all are long."""
    label = label.replace("/", "_")
    if options or len(label) > MAX_FOLDER_LENGTH:
        label = f"{label[:MAX_FOLDER_LENGTH]},{_hash(label, options)}".removeprefix(",")
    return f"{label},seed={seed}".removeprefix(",")


def _hash(label: str, options: dict[str, Any]) -> str:
    """Return a hash of settings, and of the source of those classes that this script or notebook defines.

    Code that these classes inherit or call does not count.
    """
    text = f"{label}\n{OmegaConf.to_yaml(options)}"
    for name in re.findall(r"_target_: __main__\.(\w+)", text):
        text += _source(getattr(sys.modules["__main__"], name))
    return sha256(text.encode()).hexdigest()[:8]


def _source(value: Any) -> str:
    """Return the source of a class or function; in a notebook, a class' methods and values."""
    with suppress(OSError, TypeError):  # typed at Python's prompt
        return getsource(value)
    if not isclass(value):
        return ""
    own = vars(value).items()
    values = {name: item for name, item in own if not name.startswith("__") and is_plain(item)}
    return repr(values) + "".join(_source(item) for _, item in own if isfunction(item))


def write_options(folder: Path, options: dict[str, Any]) -> Path:
    """Write each group's option; return the search folder, named by a hash of its content."""
    place = (folder / "options" / _hash("", options)).resolve()
    for group, option in options.items():
        file = place / group / f"{option[NAME]}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        header = f"# @package {KEY_OF_GROUP[group]}\n" if group in KEY_OF_GROUP else ""
        content = {key: value for key, value in option.items() if key != NAME}
        file.write_text(header + OmegaConf.to_yaml(content))
    return place


def describe_option(group: str, value: object) -> dict[str, dict[str, Any]]:
    """Return the option that describes an object, by group; for a strategy, also those of its parts.

    Raises
    ------
    UserError : for a name that is not a group, an object of a local class, or one without plain values
    """
    name = option_name(value)
    if isinstance(value, dict) and group != "corrections":
        place = f"{KEY_OF_GROUP.get(group, group)}.{next(iter(value), 'name')}"
        raise UserError(
            f"{group} is given a dict: write each of its values as a setting, run('{place}=...')"
        )
    if not (CONF / group).is_dir():
        raise UserError(f"{group}={name}: {group} is no group of options, and takes a plain value")
    kind = value.func if isinstance(value, partial) else value
    if isclass(kind) and issubclass(kind, PseudoGradientStrategy):
        value = _build(value)
    if isinstance(value, PseudoGradientStrategy):
        return _describe_strategy(value)
    if isinstance(value, BaseStrategy) or (isclass(kind) and issubclass(kind, BaseStrategy)):
        raise UserError(
            f"strategy={name} wraps another strategy, which takes its settings from the run: choose it "
            "by its option's name, or write a file"
        )
    if group == "dataset":
        option: dict[str, Any] = {"shape": None, "num_classes": None, "load": describe(group, value)}
    elif group == "corrections":
        corrections = _named_corrections(value)
        option = {key: {**describe(group, one), "_partial_": True} for key, one in corrections.items()}
        name = "_".join(map(option_name, corrections.values())) or "no_corrections"
    elif isinstance(value, list | tuple):
        raise UserError(
            f"{group}={name}: expected an object, a class or a function; other values go into the settings"
        )
    else:
        option = describe(group, value)
    if group == "client_optimizer":
        option = {"defaults": ["base", "_self_"], "optimizer": {**option, "_partial_": True}}
    if group == "model":
        measured = {"input_shape": "${dataset.shape}", "num_classes": "${dataset.num_classes}"}
        option = {
            key: at for key, at in measured.items() if takes_argument(option["_target_"], key)
        } | option
    return {group: {NAME: name, **option}}


def _named_corrections(value: Any) -> dict[str, Any]:
    """Return corrections by name; those of a list have their classes' names.

    Raises
    ------
    UserError : for what is no correction's class, and for two of one name
    """
    several = value if isinstance(value, list | tuple) else [value]
    pairs = (
        value.items() if isinstance(value, dict) else [(option_name(one).lower(), one) for one in several]
    )
    named: dict[str, Any] = {}
    for name, one in pairs:
        if isinstance(one, str):
            raise UserError(f"corrections has {one!r}: choose options by name in the settings, {BY_NAME}")
        if is_plain(one) or isinstance(one, list | tuple | dict):
            raise UserError(f"corrections has {one!r}: expected {OF_CORRECTIONS}")
        if name in named:
            raise UserError(f"corrections has two of {option_name(one)}: name them, {NAMED}")
        named[name] = one
    return named


def _build(strategy: Any) -> Any:
    try:
        return strategy()
    except (TypeError, ValueError) as error:
        raise UserError(f"strategy={option_name(strategy)}: {error}") from error


def _describe_strategy(strategy: PseudoGradientStrategy) -> dict[str, dict[str, Any]]:
    """Return the options of a strategy and its parts; fields at FedAvg's defaults follow the settings."""
    name = option_name(strategy)
    plain = {field.name: _default(field) for field in fields(PseudoGradientStrategy)}
    own: dict[str, Any] = {}
    options: dict[str, dict[str, Any]] = {}
    for field in fields(strategy):
        value = getattr(strategy, field.name)
        if not field.init or value == plain.get(field.name, MISSING):
            continue
        if field.name in PARTS:
            options |= describe_option(field.name, value)
        elif field.name not in RUN_SETTINGS:
            own[field.name] = describe(f"strategy.{field.name}", value)
        elif value != _default(field):
            raise UserError(
                f"strategy={name}({field.name}=...) is the run's: give {field.name} to run itself"
            )
    own = {"defaults": ["base", "_self_"], "_target_": name_target("strategy", type(strategy)), **own}
    return {"strategy": {NAME: name, **own}, **options}


def _default(field: "Field[Any]") -> object:
    return field.default if field.default_factory is MISSING else field.default_factory()


def describe(name: str, value: object) -> Any:
    """Return a value as plain YAML; an object becomes its class and fields.

    Raises
    ------
    UserError : for a value that cannot be written as YAML
    """
    if is_plain(value):
        return os.fspath(value) if isinstance(value, PathLike) else getattr(value, "item", lambda: value)()
    if isinstance(value, list | tuple):
        return [describe(name, item) for item in value]
    if isinstance(value, dict):
        return {str(key): describe(f"{name}.{key}", item) for key, item in value.items()}
    if isinstance(value, partial) and value.args:
        raise UserError(
            f"{name}: name the arguments of the partial, partial({option_name(value)}, name=value)"
        )
    if isinstance(value, partial):
        return {"_target_": name_target(name, value.func), **describe(name, value.keywords)}
    if isclass(value) or isfunction(value):
        return {"_target_": name_target(name, value)}
    if is_dataclass(value) and not isinstance(value, type):
        own = {field.name: getattr(value, field.name) for field in fields(value) if field.init}
        return {"_target_": name_target(name, type(value)), **describe(name, own)}
    if isinstance(value, object) and not getattr(value, "__dict__", {"": None}):
        return {"_target_": name_target(name, type(value))}
    raise UserError(
        f"{name}: an object of {type(value).__name__} cannot be written as an option: give its class, or "
        f"functools.partial({type(value).__name__}, name=value), which each process calls for itself"
    )


def name_target(name: str, value: Any) -> str:
    """Return the import path of a class or function, the shorter public one if there is one."""
    if "<" in value.__qualname__:  # <locals>, <lambda>
        raise UserError(
            f"{name}: {value.__qualname__} has no name to import it by: define it at a module's top level"
        )
    package = value.__module__.partition(".")[0]
    public: Any = getattr(sys.modules[package], value.__qualname__, None)
    if public is value:
        return f"{package}.{value.__qualname__}"
    return f"{value.__module__}.{value.__qualname__}"


def require_importable(overrides: str) -> None:
    """Refuse a class that only this process has, if other processes must build it."""
    cfg = config.load(overrides)
    here = [target for target in config.targets(cfg) if target.startswith("__main__.")]
    inline = str(cfg.runtime._target_).endswith(".Inline")
    if here and not inline:
        raise UserError(
            f"{here[0]} is defined in this script or notebook, which other processes do not have: put it into a "
            "module, or take runtime=inline"
        )
