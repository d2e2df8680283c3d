"""The closed configuration: the limits on what others may submit to a node or a deployment's server.

A submitted configuration is data. It chooses options of ``conf`` and sets numbers; it names no class, place
or variable beyond those that ``conf`` or the process' owner names. All of it is checked before any module
is imported and any interpolation is resolved:

* A class or function (``_target_``) must be in ``conf``, or on the owner's list of further *targets*.
* Interpolations (``${...}``) are those of ``conf`` itself, in the same places.
* Places belong to the owner: ``data_root``, ``runtime`` and ``hydra`` are refused. Texts in ``dataset``,
  ``clock`` and ``logger`` (file names, addresses) must be those of ``conf``, except for the schema. A model
  opens no file that a submitter names.

The owner allows more by variables of the process' environment: :data:`TARGETS_VARIABLE` and :data:`TRUST_VARIABLE`.
"""

import os
import shlex
from collections.abc import Collection, Iterator
from functools import cache
from typing import Any

import yaml  # type: ignore[import-untyped]
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from baselines.errors import UserError

from . import config
from .identity import names_file
from .overrides import CONF

TARGETS_VARIABLE = "FLORILEGIUM_TARGETS"  # variable: full names of further classes, separated by commas
TRUST_VARIABLE = (
    "FLORILEGIUM_TRUST_SUBMITTER"  # variable: 1 where whoever submits is the owner of this process
)
OWNER_SETTINGS = ("hydra", "runtime", "data_root")  # settings of the process' owner
FIXED_GROUPS = (
    "clock",
    "dataset",
    "logger",
    "runtime",
)  # groups whose texts name files, addresses and modules
SCHEMA = ("dataset", "schema")  # their only text that may be submitted: names of columns and classes
FIXED_PLACES = {
    *FIXED_GROUPS,
    "hydra",
    "config.yaml",
}  # targets that read files, open connections, start programs
MAX_CHARACTERS = 1 << 20  # characters of an override string


class ClosedError(UserError):
    """A submitted configuration that asks for more than it may; its text names settings, not values."""

    def __init__(self, line: str) -> None:
        super().__init__(line)
        self.public = f"configuration: {line}"


def is_open() -> bool:
    """Say whether this process' owner trusts every submitter."""
    return os.environ.get(TRUST_VARIABLE) == "1"


def own_targets() -> frozenset[str]:
    """Return the further targets named in this process' environment."""
    return frozenset(
        name.strip() for name in os.environ.get(TARGETS_VARIABLE, "").split(",") if name.strip()
    )


def check(overrides: str, targets: Collection[str] = ()) -> None:
    """Refuse a submitted override string that asks for more than the options in ``conf`` and numbers.

    Parameters
    ----------
    overrides : the experiment, as one shell-quoted string
    targets : classes and functions, by full name, that the owner allows besides those that ``conf`` names

    Raises
    ------
    ClosedError : in one line that names the setting
    UserError : for what cannot be composed at all
    """
    if len(overrides) > MAX_CHARACTERS:
        raise ClosedError(f"the overrides have more than {MAX_CHARACTERS} signs")
    parsed = _parse(overrides)
    for override in parsed:
        _check_override(override)
    chosen = [o.input_line for o in parsed if (CONF / str(o.key_or_group)).is_dir() and o.input_line]
    configuration = _raw(config.compose_unchecked(overrides).cfg)
    plain = _raw(config.compose_unchecked(shlex.join(chosen)).cfg)
    _check_tree(configuration, plain, known_targets() | own_targets() | frozenset(targets))


@cache
def known_targets() -> frozenset[str]:
    """Return every class and function that ``conf`` names."""
    return frozenset(_groups_of_targets())


@cache
def _groups_of_targets() -> dict[str, frozenset[str]]:
    """Return the groups in whose options ``conf`` names each target."""
    groups: dict[str, frozenset[str]] = {}
    for path in sorted(CONF.rglob("*.yaml")):
        group = path.relative_to(CONF).parts[0]
        for _, key, value in _leaves(yaml.safe_load(path.read_text())):
            if key == "_target_":
                groups[str(value)] = groups.get(str(value), frozenset()) | {group}
    return groups


def _parse(overrides: str) -> list[Override]:
    try:
        return OverridesParser.create().parse_overrides(shlex.split(overrides))
    except (HydraException, ValueError) as error:
        raise ClosedError("the overrides cannot be read: expected key=value") from error


def _check_override(override: Override) -> None:
    """Refuse whatever is neither an option nor a plain value, before Hydra looks for it."""
    key = str(override.key_or_group)
    name = _name(key)
    if key.replace("/", ".").split(".")[0] in OWNER_SETTINGS:
        raise ClosedError(f"{name} is set by whoever runs this process, and cannot be submitted")
    if override.package is not None or "@" in key:
        raise ClosedError(f"{name} puts an option elsewhere (@), which cannot be submitted")
    if override.is_sweep_override():
        raise ClosedError(f"{name} has several values")
    value = override.value()
    if any("${" in text for text in (key, override.input_line or "", *_texts(value))):
        raise ClosedError(f"{name} names another value (${{...}}): write the value itself")
    if (CONF / key).is_dir() and not override.is_delete():
        for option in value if isinstance(value, list) else [value]:
            if option is not None and str(option) not in _options(key):
                raise ClosedError(f"{name} names no option of this installation")


@cache
def _options(group: str) -> frozenset[str]:
    folder = CONF / group
    return frozenset(path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.yaml"))


def _texts(value: Any) -> Iterator[str]:
    """Yield every key and text in an override's value."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield str(key)
            yield from _texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)
    elif not isinstance(value, bool | int | float | None):
        yield str(getattr(value, "text", value))


def _raw(cfg: DictConfig) -> Any:
    """Return a configuration as plain containers, unresolved."""
    return OmegaConf.to_container(cfg, resolve=False)


def _leaves(node: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str, Any]]:
    """Yield (path of the parent, key, value) of every leaf of nested containers."""
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        if isinstance(value, dict | list):
            yield from _leaves(value, (*path, str(key)))
        else:
            yield path, str(key), value


def _check_tree(configuration: Any, plain: Any, targets: Collection[str]) -> None:
    """Compare a whole configuration, unresolved, with that of its options alone."""
    as_chosen = {(*path, key): value for path, key, value in _leaves(plain)}
    parts = {path: value for path, key, value in _leaves(configuration) if key == "_target_"}
    for path, key, value in _leaves(configuration):
        place = (*path, key)
        if as_chosen.get(place) == value and place in as_chosen:
            continue  # conf says so itself
        name = _name(".".join(place))
        if isinstance(value, str) and "${" in value:
            raise ClosedError(f"{name} names another value (${{...}}): write the value itself")
        if names_file(str(parts.get(path, "")), key):
            raise ClosedError(f"{name} names a file, and nodes open no file that a run names")
        if "_args_" in place:
            raise ClosedError(f"{name}: arguments must be given by name")
        is_as_in_conf = place[0] in FIXED_GROUPS and place[:2] != SCHEMA
        if "_target_" in place:
            _check_target(place, str(value), targets)
            if is_as_in_conf and str(value) in known_targets() and place in as_chosen:
                raise ClosedError(f"{name} is not the class of the chosen option")
        elif is_as_in_conf and (isinstance(value, str) or isinstance(as_chosen.get(place), str)):
            raise ClosedError(
                f"{name} is a text: {place[0]} takes numbers; other values must be its option's own"
            )


def _check_target(place: tuple[str, ...], target: str, targets: Collection[str]) -> None:
    name = _name(".".join(place))
    if target not in targets:
        raise ClosedError(
            f"{name} is not on the list of targets: what conf/ names, and what its owner adds"
        )
    groups = _groups_of_targets().get(target, frozenset())
    if place[:2] == SCHEMA or (groups and groups <= FIXED_PLACES and place[0] not in groups):
        raise ClosedError(f"{name} names a class of another group")


def _name(key: str) -> str:
    """Return a setting's name made safe to print: a submitter may have put anything into it."""
    printable = "".join(sign if sign.isalnum() or sign in "._-/" else "?" for sign in key)
    return printable if len(printable) <= 80 else f"{printable[:80]}..."
