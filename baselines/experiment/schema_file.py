"""A schema's file, written into the overrides: what other processes and sites get is the schema itself."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import OmegaConf
from yaml import YAMLError  # type: ignore[import-untyped]

from baselines.errors import UserError

if TYPE_CHECKING:
    from baselines.datasets.schema import Schema

KEY = "dataset.schema"
QUOTES = "'\""


def inlined(override: str) -> str:
    """Return ``dataset.schema=FILE`` as ``dataset.schema={...}``, and any other override as it is.

    Raises
    ------
    UserError : for a file that is not there, or holds no schema
    """
    key, _, value = override.partition("=")
    if key.lstrip("+") != KEY or value.startswith(("{", "$")) or value in ("", "null", "???"):
        return override
    return f"{KEY}={_written(read(Path(value.strip(QUOTES))).as_dict())}"


def read(path: Path) -> "Schema":
    """Return the schema in a file.

    Raises
    ------
    UserError : for a file that is not there, or holds no schema
    """
    from baselines.datasets.schema import schema_of  # and with it torch, which takes seconds

    try:
        told = OmegaConf.to_container(OmegaConf.create(path.read_text()))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"dataset.schema: {path} cannot be read ({error}): write one with "
            "python -m baselines.federation schema"
        ) from error
    except (YAMLError, ValueError) as error:
        raise UserError(f"dataset.schema: {path} is not YAML: {error}") from error
    if not isinstance(told, dict):
        raise UserError(f"dataset.schema: {path} holds no schema")
    return schema_of(told)  # type: ignore[arg-type]


def _written(value: Any) -> str:
    """Return a value in Hydra's grammar, without spaces."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{_written(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_written, value)) + "]"
    if not isinstance(value, str):
        return repr(value)
    if "${" in value or value.endswith("\\"):
        raise UserError(
            f"the schema's name {value!r} cannot travel: expected no ${{ and no final backslash"
        )
    return "'" + value.replace("'", r"\'") + "'"
