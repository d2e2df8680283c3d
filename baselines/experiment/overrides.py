"""Overrides: prepare a command line's overrides for other processes and for folder names."""

import os
import re
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.conf import HydraConf
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from hydra.utils import to_absolute_path
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError  # type: ignore[import-untyped]

from baselines.errors import UserError

if TYPE_CHECKING:
    from baselines.datasets.local import Schema


# A schema's file becomes part of the overrides: other processes and sites get the schema itself.


KEY = "dataset.schema"
QUOTES = "'\""


def inline_schema(override: str) -> str:
    """Return ``dataset.schema=FILE`` as ``dataset.schema={...}``, and any other override unchanged.

    Raises
    ------
    UserError : for a file that is not there, or holds no schema
    """
    key, _, value = override.partition("=")
    if key.lstrip("+") != KEY or value.startswith(("{", "$")) or value in ("", "null", "???"):
        return override
    return f"{KEY}={format_flow(read_schema_file(Path(value.strip(QUOTES))).as_dict())}"


def read_schema_file(path: Path) -> "Schema":
    """Return the schema in a file.

    Raises
    ------
    UserError : for a file that is not there, or holds no schema
    """
    from baselines.datasets.local import schema_of  # imports torch, which takes seconds

    try:
        fields = OmegaConf.to_container(OmegaConf.create(path.read_text()))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"dataset.schema: {path} cannot be read ({error}): write one with "
            "python -m baselines.federation schema"
        ) from error
    except (YAMLError, ValueError) as error:
        raise UserError(f"dataset.schema: {path} is not YAML: {error}") from error
    if not isinstance(fields, dict):
        raise UserError(f"dataset.schema: {path} holds no schema")
    return schema_of(fields)  # type: ignore[arg-type]


def format_flow(value: Any) -> str:
    """Return a value in Hydra's grammar, without spaces."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{format_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(format_flow, value)) + "]"
    if not isinstance(value, str):
        return repr(value)
    if "${" in value or value.endswith("\\"):
        raise UserError(
            f"the schema's name {value!r} cannot travel: expected no ${{ and no final backslash"
        )
    return "'" + value.replace("'", r"\'") + "'"


MAX_NAME_BYTES = 255  # bytes that a file system allows
MULTIRUN = "multirun.yaml"  # in a sweep's folder: the requested configuration, as Hydra writes it
HYDRA = ".hydra"  # in a run's folder: Hydra's record of a start
RESERVED_WORDS = ("null", "true", "false", "nan", "inf")  # which Hydra does not read as texts


def quote(text: str) -> str:
    """Quote a text for Hydra if it has spaces or special characters."""
    plain = re.fullmatch(r"[A-Za-z_./][A-Za-z0-9_./-]*", text) and text.lower() not in RESERVED_WORDS
    return text if plain else "'" + text.replace("'", r"\'") + "'"


def add_config_dir(parser: ArgumentParser) -> None:
    """Add the option ``--config-dir``, as Hydra's commands have it."""
    description = "a folder of options of your own, laid out like conf/"
    parser.add_argument("--config-dir", type=Path, metavar="FOLDER", help=description)


def with_config_dir(folder: Path | None, overrides: list[str]) -> list[str]:
    """Return the overrides, with a folder's options on the search path."""
    if folder is None:
        return overrides
    return [f"hydra.searchpath=[{quote(f'file://{folder.resolve()}')}]", *overrides]


FOLDER_OPTIONS = ("--config-dir", "-cd", "--config-path", "-cp")  # their values may contain a =


def sort_overrides_last(arguments: list[str]) -> list[str]:
    """Return Hydra's arguments with the overrides behind the options, as Hydra needs them together."""
    pairs = [*zip(["", *arguments], arguments, strict=False)]
    last = [i for i, (before, one) in enumerate(pairs) if before not in FOLDER_OPTIONS and _overrides(one)]
    return [one for i, one in enumerate(arguments) if i not in last] + [arguments[i] for i in last]


def _overrides(argument: str) -> bool:
    return argument.startswith("~") or ("=" in argument and not argument.startswith("-"))


def require_keys(overrides: list[str]) -> list[str]:
    """Refuse an override without a key (``=3``), of which Hydra's error says nothing, and Python's None.

    Hydra reads ``None`` as a text, which each part would refuse in a less helpful way.
    """
    for override in overrides:
        if override.lstrip("+~").startswith("="):
            raise UserError(f"cannot read {override}: expected key=value")
        key, _, value = override.lstrip("+").partition("=")
        if "None" in value.split(",") and not key.startswith("-"):
            raise UserError(f"{key} is given the text 'None': for nothing write null")
    return overrides


def carry_overrides(settings: HydraConf, cfg: DictConfig) -> Iterator[str]:
    """Yield a job's overrides in a form that any process can read.

    The data folder becomes absolute, references become values, and a schema's file becomes its content.
    """
    for override in map(inline_schema, _written(settings.overrides, "task")):
        if override.lstrip("+").startswith("data_root=") and type(_value("data_root", cfg)) is str:
            folder = to_absolute_path(os.path.expanduser(cfg.data_root))
            yield f"data_root={quote(folder)}"
        else:
            yield resolve_override(override, cfg)


def _written(node: Any, key: str) -> Any:
    """Return a setting unresolved: within Hydra's node its references would not resolve."""
    return OmegaConf.to_container(node, resolve=False)[key]  # type: ignore[call-overload,index]


def resolve_override(override: str, cfg: DictConfig) -> str:
    """Return an override with a reference (``key=${..other}``) replaced by its value.

    A reference without a value, or to a whole part, stays: composing it reports the error.
    """
    name, _, text = override.partition("=")
    value = _value(name.lstrip("+"), cfg) if _has_reference(text) else None
    if type(value) is str:
        return f"{name}={quote(value)}"
    return f"{name}={str(value).lower()}" if type(value) in (bool, int, float) else override


def _has_reference(text: str) -> bool:
    r"""Say whether a text has a reference; a sweeper writes it as ``$\{..other\}``."""
    return "${" in text.replace("\\", "")


def _value(key: str, cfg: DictConfig) -> Any:
    with suppress(OmegaConfBaseException):
        return OmegaConf.select(cfg, key)
    return None


def run_folder(*, _root_: DictConfig) -> str:
    """Return the name of a run's folder within its sweep's: its overrides, as Hydra joins them.

    If that is too long: what the sweep varies, and a hash of all; if that is too long as well, the hash.
    An existing folder with the same hash keeps its name. The rounds, and settings that decide no number,
    are included only if they vary: so a sweep repeated with more rounds finds its runs.
    """
    sweep = Path(_root_.hydra.sweep.dir)
    varied = _varied(sweep / MULTIRUN)
    unnamed = {*_root_.hydra.job.config.override_dirname.exclude_keys}
    named = _named(_root_, unnamed - varied)
    name = str(_written(_root_.hydra.job, "override_dirname"))
    if _has_reference(name) or varied & unnamed:
        name = ",".join(text for _, text in named).replace("$", "")  # which Hydra would resolve
    if all(len(part.encode()) <= MAX_NAME_BYTES for part in name.split("/")):
        return name
    digest = sha256(name.encode()).hexdigest()[:16]
    if existing := sorted(path.name for path in sweep.glob(f"*{digest}")):
        return existing[0]
    short = ",".join([*(text for key, text in named if key in varied), digest]).replace("/", "-")
    return short if len(short.encode()) <= MAX_NAME_BYTES else digest


def _named(root: DictConfig, excluded: set[str]) -> list[tuple[str, str]]:
    """Return the overrides that name a folder, as (key, text) in Hydra's order."""
    texts = sorted(_written(root.hydra.overrides, "task"))
    pairs = [(text.lstrip("+~").partition("=")[0], resolve_override(text, root)) for text in texts]
    return [(key, text) for key, text in pairs if key not in excluded]


def _varied(multirun: Path) -> set[str]:
    """Return the keys that a sweep varies, from its multirun.yaml; none without that."""
    try:
        settings = OmegaConf.load(multirun).hydra
        return {override.get_key_element().lstrip("+~") for override in swept(settings)}
    except (OSError, AttributeError, OmegaConfBaseException, HydraException):
        return set()


def swept(settings: Any) -> list[Override]:
    """Return the swept overrides, from the command line and from the sweeper's settings."""
    params = settings.sweeper.get("params") or {}
    texts = [*(f"{key}={value}" for key, value in params.items()), *_written(settings.overrides, "task")]
    parsed = OverridesParser.create().parse_overrides(texts)
    return [override for override in parsed if override.is_sweep_override()]


def hydra_folder(*, _root_: DictConfig) -> str:
    """Return the name of the folder for Hydra's record of a start: .hydra, .hydra.2, ...

    It is the first that is free, or has the same overrides, so a resumed run keeps the record of its
    beginning. ``resume=false`` starts again with ``.hydra``.
    """
    folder, texts = (
        OmegaConf.select(_root_, "hydra.runtime.output_dir"),
        _written(_root_.hydra.overrides, "task"),
    )
    if folder is None or OmegaConf.select(_root_, "resume") is False:
        return HYDRA
    names = (HYDRA if start == 1 else f"{HYDRA}.{start}" for start in count(1))
    return next(
        name for name in names if _started_with(Path(folder, name, "overrides.yaml")) in (None, texts)
    )


def _started_with(file: Path) -> Any:
    """Return the overrides that Hydra recorded; None if there are none, or they cannot be read."""
    try:
        return OmegaConf.to_container(OmegaConf.load(file), resolve=False)
    except (OSError, ValueError, OmegaConfBaseException, YAMLError):
        return None


OmegaConf.register_new_resolver("run_folder", run_folder, replace=True)
OmegaConf.register_new_resolver("hydra_folder", hydra_folder, replace=True)


# Places: the folders of the project and of its options.


ROOT = Path(__file__).resolve().parents[2]
CONF = ROOT / "conf"
SHARED = ("base", "common")  # templates that options are made of, not options themselves
