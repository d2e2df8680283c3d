"""Compose a configuration from an override string, the same way in every process.

Processes exchange the list of overrides, as one string; each composes the configuration from the ``conf``
folder beside its own code.
"""

import copy
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.util import find_spec
from inspect import signature
from itertools import chain
from pathlib import Path
from threading import RLock
from typing import Any

import torch
from hydra import compose, initialize_config_dir
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType
from hydra.core.utils import JobRuntime
from hydra.errors import HydraException, InstantiationException
from hydra.types import RunMode
from hydra.utils import get_object, instantiate
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException
from torch import nn
from torch.nn.parameter import is_lazy
from yaml import YAMLError  # type: ignore[import-untyped]

from baselines.datasets import Dataset
from baselines.errors import UserError
from clients import Correction, Examples
from clients.examples import Inputs, apply_to_each, compute_outputs, count_rows
from strategies.shared.codecs import COMPRESSIONS
from strategies.shared.compression import Compression, NoCompression

from .messages import describe_mistake, describe_unreadable
from .overrides import CONF, require_keys
from .validation import check_ranges, find_object, find_wrong_types

# A user's own corrections that a strategy, or one of its parts, requests from nodes: its file names them.

NODE_CORRECTIONS = (
    "node_corrections"  # in that file: [{_target_: mylab.inertia.Inertia}]; only nodes build them
)


def own_corrections(cfg: DictConfig) -> list[type[Correction]]:
    """Return the corrections that the files of the strategy and of its parts name.

    Raises
    ------
    UserError : for a class that cannot be imported, or is not a correction with a ``config_key``
    """
    return [_correction(named) for named in dict.fromkeys(_iterate_names(_resolve(cfg.strategy)))]


def _iterate_names(settings: Any) -> Iterator[str]:
    """Yield the names of the classes, at any depth."""
    if not isinstance(settings, dict):
        return
    for key, value in settings.items():
        if key != NODE_CORRECTIONS:
            yield from _iterate_names(value)
            continue
        for entry in value if isinstance(value, list) else [value]:
            if not isinstance(entry, dict) or [*entry] != ["_target_"]:
                raise UserError(
                    f"strategy.{NODE_CORRECTIONS} has {entry}: expected a list of classes, "
                    "[{_target_: mylab.inertia.Inertia}]; their settings come with the message"
                )
            yield str(entry["_target_"])


def own_compressions(cfg: DictConfig) -> list[type[Compression]]:
    """Return the user's own compressions that the strategy's configuration names."""
    strategies = [strategy for strategy in (cfg.strategy, cfg.strategy.get("inner")) if strategy]
    chosen = [strategy.compression for strategy in strategies if strategy.get("compression")]
    kinds = {_import_class(str(compression.get("_target_"))) for compression in chosen}
    known = (NoCompression, *COMPRESSIONS)
    return [k for k in kinds if isinstance(k, type) and issubclass(k, Compression) and k not in known]


def _import_class(name: str) -> Any:
    try:
        return get_object(name)
    except Exception as error:  # the user's module may raise anything
        message = " ".join(str(error).split())
        raise UserError(f"{name} cannot be imported: {message} (is its folder on PYTHONPATH?)") from error


def _correction(name: str) -> type[Correction]:
    kind = _import_class(name)
    if not (isinstance(kind, type) and issubclass(kind, Correction) and kind.config_key):
        raise UserError(
            f"strategy.{NODE_CORRECTIONS}: {name} is not a Correction with a config_key, the key by which a "
            "message asks for it"
        )
    return kind


def without_corrections(cfg: DictConfig) -> DictConfig:
    """Return the configuration for the server, without ``node_corrections``."""
    if NODE_CORRECTIONS not in OmegaConf.to_yaml(cfg.strategy, resolve=True):
        return cfg
    cfg = copy.deepcopy(cfg)
    with open_dict(cfg):
        _drop(cfg)
    return cfg


def _drop(node: Any) -> None:
    if isinstance(node, DictConfig) and not node._is_none():
        node.pop(NODE_CORRECTIONS, None)
        for key in map(str, node):
            if not OmegaConf.is_interpolation(node, key) and not OmegaConf.is_missing(node, key):
                _drop(node[key])


def _resolve(part: DictConfig) -> Any:
    return OmegaConf.to_container(part, resolve=True)


def targets(part: DictConfig) -> Iterator[str]:
    """Yield the ``_target_`` of a part and of the parts nested in it."""
    return _targets(_resolve(part))


def _targets(settings: Any) -> Iterator[str]:
    if isinstance(settings, dict):
        if "_target_" in settings:
            yield str(settings["_target_"])
        settings = list(settings.values())
    for value in settings if isinstance(settings, list) else ():
        yield from _targets(value)


# Shadowed: a user's option with the name of one of the project's, which would not be read.
#
# Hydra takes an option from the first folder that has it, and the project's comes first.


def check_shadowed(overrides: Sequence[str], sources: Sequence[DictConfig], conf: Path) -> None:
    """Refuse an option taken from ``conf`` that an added folder also has.

    Parameters
    ----------
    overrides, sources : the configuration's, and where Hydra looks for options
    conf : the project's folder of options

    Raises
    ------
    UserError : in one line that names the file
    """
    added = [folder for source in sources if "searchpath" in source.provider for folder in _folders(source)]
    twice = {path: folder for folder in added for path in _options(folder) if (conf / path).is_file()}
    if not twice:
        return
    loader = GlobalHydra.instance().config_loader()
    taken = loader.compute_defaults_list("config", list(overrides), RunMode.RUN).defaults
    for option in taken:
        path = f"{option.config_path}.yaml"
        if path in twice:
            raise UserError(
                f"{twice[path] / path} would be ignored: the project has a {path} of its own; rename yours"
            )


def _folders(source: DictConfig) -> Iterator[Path]:
    if source.schema == "file":
        yield Path(source.path)
    elif source.schema == "pkg":
        with suppress(ImportError):  # Hydra warns of it
            spec = find_spec(source.path)
            yield from map(Path, spec.submodule_search_locations or () if spec else ())


def _options(folder: Path) -> Iterator[str]:
    return (path.relative_to(folder).as_posix() for path in folder.rglob("*.yaml"))


# Unread: settings of an option's file that nothing reads. Hydra accepts any, even misspelt ones.


PACKAGES = {  # of groups whose options belong to another part
    "client_optimizer": "client",
    "corrections": "client.corrections",
    "experiment": "_global_",
    "personal": "client",
    "private": "client",
    "schedule": "client.schedule",
}


def check_unread(cfg: DictConfig) -> None:
    """Refuse a setting beyond those of ``conf/config.yaml`` and its groups, unless another refers to it.

    Raises
    ------
    UserError : in one line that says what the file lacks, or what was meant
    """
    own = _own_settings()
    added = [str(key) for key in cfg if key not in own]
    for key, nested in own.items():
        node = cfg.get(key) if nested else None
        if isinstance(node, DictConfig):
            added += [f"{key}.{name}" for name in map(str, node) if name not in nested]
    written = OmegaConf.to_yaml(cfg, resolve=False) if added else ""
    for name in added:
        if name in PACKAGES:
            first = next(iter(cfg[name] or ["..."]))
            package = PACKAGES[name]
            raise UserError(
                f"{name}.{first} is not read: begin its file in {name}/ with # @package {package}"
            )
        if f"${{{name}" not in written:
            places = [*own, *(f"{key}.{one}" for key, nested in own.items() for one in nested)]
            near = get_close_matches(name, places, 1, 0.7)
            hint = f"did you mean {near[0]}?" if near else "leave it out"
            raise UserError(f"there is no setting {name}, which an option's file sets: {hint}")


@cache
def _own_settings() -> dict[str, tuple[str, ...]]:
    """Return a configuration's top-level settings, each with its nested settings unless it is a group."""
    file: Any = OmegaConf.to_container(OmegaConf.load(CONF / "config.yaml"), resolve=False)
    chosen = [key for entry in file.pop("defaults") if isinstance(entry, dict) for key in entry]
    groups = dict.fromkeys(key for key in chosen if key not in PACKAGES and " " not in key)
    return dict.fromkeys(groups, ()) | {k: tuple(v) if isinstance(v, dict) else () for k, v in file.items()}


# Why a part could not be built, in one line that names its settings.


MAX_ERROR_LENGTH = 300  # characters of a library's error


def explain_error(error: InstantiationException, node: Any, arguments: dict[str, Any]) -> str:
    """Return the suite's own message on a setting, if any; else the part, its settings and the error."""
    cause: BaseException | None = error.__cause__
    while cause is not None:
        names_it = isinstance(cause, ValueError) and "=" in str(cause)
        if names_it or isinstance(cause, UserError):
            return str(cause)
        cause = cause.__cause__
    if undecorated := _undecorated(node):
        return undecorated
    message, _, key = str(error).partition("full_key: ")
    text = " ".join(message.partition(", set env var")[0].split())[:MAX_ERROR_LENGTH]
    name = key or (node._get_full_key(None) if OmegaConf.is_config(node) else "")
    settings = ", ".join(_list_settings(node, key) + [_text(*pair) for pair in arguments.items()])
    return f"{name} cannot be built{' with ' * bool(settings)}{settings}: {text}{_import(error)}"


def _undecorated(node: Any) -> str:
    """Report a user's class that lacks ``@dataclass``, so that its annotated settings are not arguments."""
    kind = find_object(str(node.get("_target_"))) if isinstance(node, DictConfig) else None
    if not isinstance(kind, type) or "__dataclass_params__" in vars(kind):
        return ""
    taken, own = signature(kind).parameters, vars(kind).get("__annotations__", {})
    missing = [name for name in own if name in node and name not in taken]
    if not missing:
        return ""
    name = kind.__name__
    return f"{name} does not take {missing[0]}: decorate {name} with @dataclass(kw_only=True, eq=False)"


def _list_settings(node: Any, key: str) -> list[str]:
    """Return the settings of the part at a dotted key, without nested parts."""
    root = node._get_full_key(None) if OmegaConf.is_config(node) else ""
    part = OmegaConf.select(node, key.removeprefix(root).lstrip(".")) if key else node
    settings = part if isinstance(part, DictConfig) else {}
    plain = {str(name): settings[name] for name in settings if not str(name).startswith("_")}
    return [_text(name, value) for name, value in plain.items() if not isinstance(value, DictConfig)]


def _text(name: str, value: object) -> str:
    return f"{name}={'null' if value is None else value}"


def _import(error: BaseException) -> str:
    """Return the reason, if a class could not be imported; else an empty text."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f": {error} (is its folder on PYTHONPATH?)" if isinstance(error, ImportError) else ""


MULTIPLE_CHOICE_GROUPS = ("corrections", "experiment", "logger")  # groups that take several options at once

_composing = RLock()  # Hydra's state is global, and a process may submit several runs at once
_registered: dict[str, DictConfig] = {}  # configurations composed by another process, by override string


def register_composed(overrides: str, text: str) -> None:
    """Register the configuration of an override string, as composed by another process."""
    cfg = OmegaConf.create(text)
    assert isinstance(cfg, DictConfig)
    _registered[overrides] = cfg


def export_composed(overrides: str) -> str:
    """Return a configuration for :func:`register_composed`; the other process resolves environment variables."""
    return OmegaConf.to_yaml(load(overrides), resolve=False)


@dataclass(frozen=True)
class Composed:
    """A configuration, and the chosen option of each group: one, several, or None."""

    cfg: DictConfig
    options: dict[str, Any]


def load(overrides: str) -> DictConfig:
    """Return the configuration of a shell-quoted override string.

    Raises
    ------
    UserError : for an unknown, deleted or empty group, an unknown option or key, a value out of range
    """
    return _registered[overrides] if overrides in _registered else compose_checked(overrides).cfg


@cache
def compose_checked(overrides: str) -> Composed:
    """Compose the configuration of an override string; :func:`load` says what it raises."""
    result = compose_unchecked(overrides)
    check_ranges(result.cfg)
    return result


@cache
def compose_unchecked(overrides: str) -> Composed:
    """Compose without checking values: nothing that the configuration names is imported."""
    try:
        with initialize_hydra():
            arguments = [
                _check_choice(override)
                for override in _check_deletion(require_keys(shlex.split(overrides)))
            ]
            result = _compose(arguments)
            checked = [_must_exist(override, result.cfg) for override in arguments]
            if checked != arguments:
                compose("config", overrides=checked)
            check_unread(result.cfg)
    except (HydraException, OmegaConfBaseException) as error:
        raise describe_mistake(error, shlex.split(overrides)) from error
    except YAMLError as error:
        raise describe_unreadable(error) from error
    except (ValueError, TypeError) as error:  # strategy=null, strategy=[1], or a quote that is not closed
        raise describe_mistake(error, overrides.split()) from error
    return result


def _compose(arguments: Sequence[str]) -> Composed:
    """Compose as Hydra does: first the options, then the values.

    Hydra needs 0.1 s for the options, so configurations that differ only in values share them.
    """
    parsed = OverridesParser.create().parse_overrides([*arguments])
    values = [override for override in parsed if _sets_value(override)]
    rest = [override for override in parsed if override not in values]
    if not all(map(_chooses_option, rest)):
        return _compose_whole(arguments)
    shared = _compose_options(tuple(str(override.input_line) for override in rest))
    result = Composed(copy.deepcopy(shared.cfg), {**shared.options})
    ConfigLoaderImpl._apply_overrides_to_config(values, result.cfg)
    return result


def _compose_whole(arguments: Sequence[str]) -> Composed:
    cfg = compose("config", overrides=[*arguments], return_hydra_config=True)
    check_shadowed(arguments, cfg.hydra.runtime.config_sources, CONF)
    options: Any = OmegaConf.to_container(cfg.hydra.runtime.choices)
    with open_dict(cfg):
        del cfg["hydra"]
    return Composed(cfg, options)


_compose_options = cache(_compose_whole)  # the project's own options do not change


def _sets_value(override: Override) -> bool:
    """Say whether an override sets an existing value, ``key=value``."""
    return _is_plain(override) and override.package is None and not _names_group(override)


def _chooses_option(override: Override) -> bool:
    """Say whether an override chooses an option of a group, ``group=option``."""
    return _is_plain(override) and _names_group(override) and not isinstance(override.value(), dict)


def _is_plain(override: Override) -> bool:
    is_change = override.type is OverrideType.CHANGE
    return is_change and not override.is_sweep_override() and not override.is_hydra_override()


def _names_group(override: Override) -> bool:
    return (CONF / override.key_or_group).is_dir()


@contextmanager
def initialize_hydra() -> Iterator[None]:
    """Let Hydra compose configurations from ``conf``, also inside ``@hydra.main``."""
    with _composing:
        hydra = GlobalHydra.instance()
        outer = hydra.hydra
        hydra.clear()
        try:
            job = JobRuntime.instance().get("name")  # keep it: the job's log is named after it
            with initialize_config_dir(config_dir=str(CONF), job_name=job, version_base="1.3"):
                yield
        finally:
            hydra.hydra = outer


def _check_deletion(overrides: list[str]) -> list[str]:
    """Refuse to delete a whole group or setting (Hydra's ``~client``): every run reads all of them."""
    for override in overrides:
        key, _, _ = override.removeprefix("~").partition("=")
        if override.startswith("~") and "." not in key:
            raise UserError(
                f"{override} deletes a setting that every run needs: choose another value, {key}=..."
            )
    return overrides


def _check_choice(override: str) -> str:
    """Refuse a template (``strategy=base``), several options in a group of one, a missing search path."""
    key, _, value = override.lstrip("+").partition("=")
    if (
        (CONF / key).is_dir()
        and value.startswith("[")
        and "," in value
        and key not in MULTIPLE_CHOICE_GROUPS
    ):
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
    """Return ``+key=value`` without its plus, so that Hydra refuses a new key.

    Exceptions are a part's arguments, which the part checks itself, groups, and Hydra's own settings.
    """
    plain = override.lstrip("+")
    key = plain.partition("=")[0]
    path = key.split(".")
    within = [OmegaConf.select(cfg, ".".join(path[:depth])) for depth in range(1, len(path) + 1)]
    argument = any(isinstance(node, DictConfig) and "_target_" in node for node in within)
    group = "@" in key or (CONF / key).is_dir()
    return override if argument or group or path[0] == "hydra" else plain


def build(node: Any, **arguments: Any) -> Any:
    """Instantiate a configuration node; raise a one-line ``UserError`` for a wrong value or class."""
    for mistaken in find_wrong_types(node, arguments=set(arguments)):
        raise UserError(mistaken)
    try:
        return instantiate(node, **arguments, _convert_="all")
    except InstantiationException as error:
        raise UserError(explain_error(error, node, arguments)) from error


# Choices: which option a configuration takes in each group, and its values one by one.


def choices(overrides: str) -> dict[str, str]:
    """Return the chosen option of each group, defaults included.

    Raises
    ------
    UserError : as :func:`baselines.experiment.config.load`
    """
    taken = compose_checked(overrides).options.items()
    ours = {group: option for group, option in taken if not group.startswith("hydra/")}
    return {group: "null" if option is None else str(option) for group, option in ours.items()}


def leaves(value: Any, prefix: str = "") -> dict[str, Any]:
    """Return nested settings as {dotted key: value}."""
    if not isinstance(value, dict):
        return {prefix: value}
    parts = (leaves(item, f"{prefix}.{key}" if prefix else str(key)) for key, item in value.items())
    return {key: leaf for part in parts for key, leaf in part.items()}


# Lazy modules such as ``nn.LazyLinear``: two examples give them their shapes before anything is sent.


NUM_SHAPE_EXAMPLES = 2
CPU = torch.device("cpu")


def has_lazy_modules(model: nn.Module) -> bool:
    """Say whether a model has parameters or buffers without a shape."""
    return bool(_names(model))


def materialize_lazy(model: nn.Module, data: Dataset) -> None:
    """Run a model on two examples in evaluation mode; its random values depend only on their shapes.

    Raises
    ------
    UserError : for a model that does not take them, or still has parameters without a shape
    """
    was_training, inputs = model.training, _two_examples(data)
    try:
        with torch.no_grad():
            compute_outputs(model.eval(), inputs)
    except Exception as error:  # the user's forward may raise anything
        message = f"{type(error).__name__}: {error}"
        raise UserError(
            "the model's lazy modules learn their shapes from two examples, which it does not take "
            f"({message}): choose another model or dataset, or give the modules their shapes"
        ) from error
    model.train(was_training)
    if names := _names(model):
        raise UserError(
            f"the model's {names[0]} has no shape, as its forward does not use it: give the module its "
            "shape, or leave it out"
        )


def _names(model: nn.Module) -> list[str]:
    return [name for name, t in chain(model.named_parameters(), model.named_buffers()) if is_lazy(t)]  # type: ignore[no-untyped-call]


def _two_examples(data: Dataset) -> Inputs:
    """Return two transformed inputs; zeros where this process has no data."""
    rows = data.train_inputs
    if count_rows(rows) < NUM_SHAPE_EXAMPLES:
        rows = apply_to_each(
            lambda part: torch.zeros(NUM_SHAPE_EXAMPLES, *part.shape[1:], dtype=part.dtype), rows
        )
    examples = Examples(
        rows, torch.zeros(count_rows(rows)), torch.arange(NUM_SHAPE_EXAMPLES), data.transform
    )
    return examples.batch(slice(None), CPU)[0]
