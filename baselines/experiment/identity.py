"""Identity: decide whether two runs give the same numbers.

They do when they agree in

* the resolved configuration, without settings that do not affect numbers (``UNHASHED_SETTINGS``) and newer settings at
  the value that they had before they existed (``LATER_SETTINGS``); files of the user's own count by their content;
* ``RESULTS_VERSION``, raised by one with every change of a metric (and noted in CHANGELOG.md);
* the versions of the packages that do the arithmetic (``PACKAGES``).

Default values count too: changing a default changes the identity of the runs that use it. Hashing only the
differences from the defaults would make ``LATER_SETTINGS`` superfluous, but would confuse runs from before and after
such a change. So a new setting goes into ``LATER_SETTINGS``, with the value that leaves every metric unchanged, and
keeps that entry even if its default changes.

The hash of the code is not part of it: most changes leave every metric unchanged, byte for byte, and must
not invalidate hours of results. Each run records it instead, beside the commit.
"""

import copy
import hashlib
import json
import os
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from baselines.datasets.cache import files_in, stamp
from baselines.errors import UserError

from . import config
from .overrides import ROOT
from .validation import OWN_MODULES

RESULTS_VERSION = 1
PACKAGES = ("numpy", "timm", "torch")


def _name_everywhere(name: str, value: object, group: str = "") -> dict[str, object]:
    """Return a setting under each of its dotted names: in its group, and in strategies that refer to it."""
    return {f"{place}{name}": value for place in (group, "strategy.", "strategy.inner.")}


LATER_SETTINGS: dict[str, object] = {  # settings newer than some results, with their values then
    **_name_everywhere("aggregation", {"_target_": "strategies.Mean"}),
    **_name_everywhere("compression", {"_target_": "strategies.NoCompression"}),
    **_name_everywhere("privacy", {"_target_": "strategies.NoPrivacy"}),
    **_name_everywhere("weighting.by_layer", False),
    **_name_everywhere("max_share", None, "evaluation."),
    **_name_everywhere("dropout", 0.0, "participation."),
    **_name_everywhere("max_norm", None, "participation."),
    **_name_everywhere("readmit", [], "participation."),
    **_name_everywhere("node_timeout", 120),
    **_name_everywhere("query_partitions", True),
    "autocast": None,
    "central_test": "all",
    "channels_last": False,
    "client.corrections": {},
    "client.least_work": 1,
    "client.personal": None,
    "client.private": [],
    "client.stragglers": 0.0,
    "client.trace": True,
    "count_bytes": False,
    "deterministic": False,
    "early_stopping.metric": "validation/accuracy",
    "early_stopping.patience": None,
    "early_stopping": {},  # if nothing else remains in it
    "evaluation.node_spread": False,
    "evaluation.per_class": False,
    "evaluation.per_node": False,
    "evaluation": {},  # if nothing else remains in it
    "participation": {},  # if nothing else remains in it
    "partitioner.even": True,
    "partitioner.group_share": None,
    "quorum": None,
    "round_deadline": None,
    "server_inputs": None,
    "runtime.authenticate": False,
    "runtime.partial_sums": False,
    "runtime.sites": None,
    "runtime.tls": False,
    "strategy.asks": False,
    "strategy.loss_examples": None,
    "staleness": {"_target_": "strategies.PolynomialStaleness", "a": 0.5},
}
CONNECTION_SETTINGS = ("address", "client_cpus", "code", "cpus", "modules", "retries", "start_timeout")
LAUNCH_SETTINGS = (  # how a runtime is reached and started, and who is readmitted: a resumed run may change them
    *(f"runtime.{name}" for name in CONNECTION_SETTINGS),
    *_name_everywhere("readmit", None, "participation."),
)
UNHASHED_SETTINGS = (
    *("checkpoint_every", "checkpoint_keep", "debug", "device_memory_share"),
    *("logger", "objective", "resume", "save"),
)


def identity(cfg: DictConfig, rounds: int | None = None, like: object = None) -> str:
    """Return a hash of what decides a run's numbers, 16 hexadecimal digits.

    With ``rounds``, that of the same run with another number of rounds. ``like`` are another run's
    settings: equal numbers count as written there (0 or 0.0), and so do settings of ``LAUNCH_SETTINGS``.
    """
    return _hash_config([config_hash(cfg, rounds, like=like), versions()])


def config_hash(
    cfg: DictConfig, rounds: int | None = None, seed: int | None = None, like: object = None
) -> str:
    """Return the part of the identity that is the same on every machine.

    ``data_root`` does not count: the same data may lie in another folder. Nor does the path of a file of the
    user's own, but its content, unless it cannot be read. ``rounds`` replaces the number of rounds, but not
    values computed from it; ``seed`` replaces the seed; ``like`` as in :func:`identity`.

    Raises
    ------
    UserError : for a configuration that lacks a value
    """
    settings, root = _resolve(cfg, seed)
    settings = _replace_by_hashes(settings, _hash_contents(settings, root))
    hashed = {
        key: value for key, value in _write_as(settings, like).items() if key not in UNHASHED_SETTINGS
    }
    for name, then in LATER_SETTINGS.items():
        _leave_out(hashed, name.split("."), then)
    if rounds is not None:
        hashed["rounds"] = rounds
    return _hash_config([RESULTS_VERSION, hashed])


def _resolve(cfg: DictConfig, seed: int | None = None) -> tuple[Any, str]:
    """Return the resolved settings, with ``DATA_ROOT`` for the data folder's path, and that path.

    Raises
    ------
    UserError : for a configuration that lacks a value
    """
    cfg = copy.deepcopy(cfg)
    if seed is not None:
        cfg.seed = seed
    try:
        root, cfg.data_root = str(cfg.data_root), DATA_ROOT
        return OmegaConf.to_container(cfg, resolve=True), root
    except OmegaConfBaseException as error:  # a missing value, or an unresolved reference
        raise UserError(str(error)) from error


def _write_as(value: Any, like: object, name: str = "") -> Any:
    """Return settings with equal numbers, and the settings of ``LAUNCH_SETTINGS``, as ``like`` has them."""
    if name in LAUNCH_SETTINGS:
        return like
    if isinstance(value, dict) and isinstance(like, dict):
        within = f"{name}." if name else ""
        return {key: _write_as(item, like.get(key, item), within + key) for key, item in value.items()}
    if isinstance(value, list) and isinstance(like, list) and len(value) == len(like):
        return [_write_as(*pair) for pair in zip(value, like, strict=True)]
    numbers = {type(value), type(like)} <= {int, float}
    return like if numbers and value == like else value


def _leave_out(settings: Any, path: list[str], then: object) -> None:
    """Remove the setting at ``path`` if its value equals ``then``."""
    for key in path[:-1]:
        settings = settings.get(key) if isinstance(settings, dict) else None
    if isinstance(settings, dict) and settings.get(path[-1], ...) == then:
        del settings[path[-1]]


def hash_setting(cfg: DictConfig) -> str:
    """Return a hash that is the same for all seeds of a setting, on every machine."""
    return config_hash(cfg, seed=0)


@cache
def versions() -> dict[str, str]:
    """Return the versions of the packages whose arithmetic decides a run's numbers."""
    return {package: version(package) for package in PACKAGES}


def _hash_config(value: Any) -> str:
    text = json.dumps(value, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# Own files: files and folders of the user's own that settings name. They count by their content: a file that is
# replaced under its path is other data, and an equal file elsewhere is the same.
#
# The data folder does not count, nor what this suite's data sets read from it by name, as that is known.


DATA_ROOT = "\0"  # stands for the data folder's path, in resolved settings
FILES = {  # arguments of this suite's classes and functions that name files
    "TraceClock": ("path",),
    "lora": ("weights",),
    "speech": ("path",),
    "text": ("name", "test_split", "tokenizer"),
}
FOLDERS = {  # those that may name a folder, too
    "HuggingFace": ("name",),
    "Inline": ("sites",),
    "SuperLink": ("sites",),
    "hub": ("name",),
    "text": ("name",),
}
# What a text may name. Of a class that is not this suite's, any text may: a name such as ``resnet18`` is not taken
# for a folder beside the run, except in ``dataset``.
NOTHING, FILE, PATH, PLACE = range(4)  # PATH: a file, or a folder written with a slash; PLACE: either

_read: dict[str, tuple[str, str]] = {}  # by absolute path: the stamp before it was read, and its hash


def names_file(target: str, argument: str) -> bool:
    """Say whether an argument of this suite's ``target`` names a file or folder of the user's own."""
    return target.startswith(OWN_MODULES) and _may_name(target, argument, NOTHING) != NOTHING


def hash_own_files(cfg: DictConfig) -> dict[str, str]:
    """Return the hash of each file and folder of the user's own that a configuration names, by its path."""
    settings, root = _resolve(cfg)
    return {text.replace(DATA_ROOT, root): one for text, one in _hash_contents(settings, root).items()}


def forget_changed() -> bool:
    """Forget the hashes of this process if one of the files has changed since, and say whether it has.

    Until then a file is read once, so that a run keeps the identity of the data that it has read.
    """
    has_changed = any(stamp([Path(path)]) != before for path, (before, _) in _read.items())
    if has_changed:
        _read.clear()
    return has_changed


def _hash_contents(settings: dict[str, Any], root: str) -> dict[str, str]:
    """Return the hash of what each text in some settings names, for those that name an own file or folder."""
    hashes = {}
    for group, part in settings.items():
        for text, kind in _find_texts(part, NOTHING, PLACE if group == "dataset" else PATH):
            path = os.path.expanduser(text.replace(DATA_ROOT, root))
            if group not in UNHASHED_SETTINGS and _exists(path, kind) and not _holds(path, root):
                with suppress(OSError):
                    hashes[text] = _hash_content(os.path.abspath(path))
    return hashes


def _find_texts(node: Any, kind: int, of_others: int) -> Iterator[tuple[str, int]]:
    """Yield the texts in some settings that may name something, and what.

    Parameters
    ----------
    kind : what a text at this place may name
    of_others : what an argument may name of a class that is not this suite's
    """
    if isinstance(node, dict):
        target = node.get("_target_")
        for key, value in node.items():
            if key != "_target_":
                below = kind if target is None else _may_name(str(target), key, of_others)
                yield from _find_texts(value, below, of_others)
    elif isinstance(node, list):
        for value in node:
            yield from _find_texts(value, kind, of_others)
    elif isinstance(node, str) and node and kind != NOTHING:
        yield node, kind


def _may_name(target: str, argument: str, of_others: int) -> int:
    """Return what an argument of a class may name."""
    if not target.startswith(OWN_MODULES):
        return of_others
    name = target.rpartition(".")[2]
    if argument in FOLDERS.get(name, ()):
        return PLACE
    return FILE if argument in FILES.get(name, ()) else NOTHING


def _exists(path: str, kind: int) -> bool:
    is_path = kind == PLACE or (kind == PATH and os.sep in path)
    return os.path.isfile(path) or (is_path and os.path.isdir(path))


def _holds(path: str, root: str) -> bool:
    """Say whether a path is that of the data folder, or of one around it."""
    return Path(root).resolve().is_relative_to(Path(path).resolve())


def _hash_content(path: str) -> str:
    """Return a hash of a file's bytes; of a folder's files, by their names, sizes and bytes."""
    if path not in _read:
        place = Path(path)
        before = stamp([place])
        _read[path] = (before, _hash_folder(place) if place.is_dir() else _hash_file(place))
    return _read[path][1]


def _hash_folder(folder: Path) -> str:
    lines = (f"{p.relative_to(folder)} {p.stat().st_size} {_hash_file(p)}" for p in files_in(folder))
    return hashlib.sha256("\n".join(lines).encode(errors="surrogateescape")).hexdigest()


def _hash_file(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _replace_by_hashes(node: Any, hashes: Mapping[str, str]) -> Any:
    """Return settings with the hash of each text's content, if any, and without the data folder's path."""
    if isinstance(node, dict):
        return {key: _replace_by_hashes(value, hashes) for key, value in node.items()}
    if isinstance(node, list):
        return [_replace_by_hashes(value, hashes) for value in node]
    return hashes.get(node, node.replace(DATA_ROOT, "")) if isinstance(node, str) else node


# Source: hashes that show whether two processes, or two runs, use the same code.


# Files that decide results, as patterns that git understands too.
HASHED_SOURCES = ("strategies/**/*.py", "clients/**/*.py", "baselines/**/*.py", "conf/**/*.yaml")


@cache
def source_hash() -> str:
    """Return a hash of this installation's code and configuration: equal code, equal results."""
    paths = (path for pattern in HASHED_SOURCES for path in sorted(ROOT.glob(pattern)))
    return _hash_files((path.relative_to(ROOT).as_posix(), path) for path in paths)


def hash_own_sources(targets: Iterable[str]) -> dict[str, str]:
    """Return a hash of each of the user's own packages that these targets belong to, by package name."""
    known = {pattern.partition("/")[0] for pattern in HASHED_SOURCES} | sys.stdlib_module_names
    names = dict.fromkeys(target.partition(".")[0] for target in targets)
    files_of = {name: [*_files(name)] for name in names if name not in known}
    return {name: _hash_files(files) for name, files in files_of.items() if files}


def _files(package: str) -> Iterator[tuple[str, Path]]:
    """Yield a package's Python files, and their names in it; none for a package installed by pip."""
    if package == "__main__":  # a class of the script that runs; a notebook has no file
        script = getattr(sys.modules[package], "__file__", None)
        yield from [(Path(script).name, Path(script))] if script else []
        return
    spec = find_spec(package)
    if spec is None:
        return
    module = [spec.origin] if spec.origin and spec.has_location else []
    for place in map(Path, spec.submodule_search_locations or module):
        if not any(place.parent.glob("*.dist-info")):  # pip leaves one beside what it installs
            files = sorted(place.rglob("*.py")) if place.is_dir() else [place]
            yield from ((file.relative_to(place.parent).as_posix(), file) for file in files)


def _hash_files(files: Iterable[tuple[str, Path]]) -> str:
    digest = hashlib.sha256()
    for name, path in files:
        digest.update(name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]


# Variants: hashes of one setting at several seeds, or with a few changed values.


class Variants:
    """The setting that some overrides describe.

    Parameters
    ----------
    overrides : a list, without a seed

    Raises
    ------
    UserError : for an override that the configuration does not take
    """

    def __init__(self, overrides: Sequence[str]) -> None:
        self._cfg = copy.deepcopy(config.load(shlex.join(overrides)))

    @property
    def rounds(self) -> int:
        """How many rounds a run has."""
        return int(self._cfg.rounds)

    @property
    def local_steps(self) -> int | None:
        """How many steps a node takes in a round; None if it is set in epochs."""
        steps: int | None = self._cfg.client.local_steps
        return steps

    def change(self, values: Mapping[str, object]) -> None:
        """Set values by their dotted names."""
        for key, value in values.items():
            OmegaConf.update(self._cfg, key, value)

    def config_hash(self, seed: int | None = None) -> str:
        """Return the hash of the configuration, the same on every machine."""
        return config_hash(self._cfg, seed=seed)

    def identity(self, seed: int) -> str:
        """Return the identity of the run with this seed."""
        self._cfg.seed = seed
        return identity(self._cfg)
