"""Why a part could not be built, in one line that names its settings."""

from typing import Any

from hydra.errors import InstantiationException
from omegaconf import DictConfig, OmegaConf

from baselines.errors import UserError

LONGEST = 300  # signs of an error of a library's


def why(error: InstantiationException, node: Any, arguments: dict[str, Any]) -> str:
    """Return what a part of ours says of its setting; else which part it was, its settings, and why."""
    cause: BaseException | None = error.__cause__
    while cause is not None:
        names_it = isinstance(cause, ValueError) and "=" in str(cause)
        if names_it or isinstance(cause, UserError):
            return str(cause)
        cause = cause.__cause__
    said, _, key = str(error).partition("full_key: ")
    text = " ".join(said.partition(", set env var")[0].split())[:LONGEST]
    name = key or (node._get_full_key(None) if OmegaConf.is_config(node) else "")
    given = ", ".join(_given(node, key) + [_text(*pair) for pair in arguments.items()])
    return f"{name} cannot be built{' with ' * bool(given)}{given}: {text}{_import(error)}"


def _given(node: Any, key: str) -> list[str]:
    """Return the settings of the part at a dotted key, the parts in it left out."""
    root = node._get_full_key(None) if OmegaConf.is_config(node) else ""
    part = OmegaConf.select(node, key.removeprefix(root).lstrip(".")) if key else node
    settings = part if isinstance(part, DictConfig) else {}
    plain = {str(name): settings[name] for name in settings if not str(name).startswith("_")}
    return [_text(name, value) for name, value in plain.items() if not isinstance(value, DictConfig)]


def _text(name: str, value: object) -> str:
    return f"{name}={'null' if value is None else value}"


def _import(error: BaseException) -> str:
    """Return why, where a class could not be imported."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f": {error} (is its folder on PYTHONPATH?)" if isinstance(error, ImportError) else ""
