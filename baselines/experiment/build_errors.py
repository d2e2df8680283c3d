"""Why a part could not be built, in one line that names its settings."""

from inspect import signature
from typing import Any

from hydra.errors import InstantiationException
from omegaconf import DictConfig, OmegaConf

from baselines.errors import UserError

from .annotations import found

LONGEST = 300  # signs of an error of a library's


def why(error: InstantiationException, node: Any, arguments: dict[str, Any]) -> str:
    """Return what a part of ours says of its setting; else which part it was, its settings, and why."""
    cause: BaseException | None = error.__cause__
    while cause is not None:
        names_it = isinstance(cause, ValueError) and "=" in str(cause)
        if names_it or isinstance(cause, UserError):
            return str(cause)
        cause = cause.__cause__
    if undecorated := _undecorated(node):
        return undecorated
    said, _, key = str(error).partition("full_key: ")
    text = " ".join(said.partition(", set env var")[0].split())[:LONGEST]
    name = key or (node._get_full_key(None) if OmegaConf.is_config(node) else "")
    given = ", ".join(_given(node, key) + [_text(*pair) for pair in arguments.items()])
    return f"{name} cannot be built{' with ' * bool(given)}{given}: {text}{_import(error)}"


def _undecorated(node: Any) -> str:
    """Name a class of the user's whose annotated setting is no field, since it is no dataclass itself."""
    kind = found(str(node.get("_target_"))) if isinstance(node, DictConfig) else None
    if not isinstance(kind, type) or "__dataclass_params__" in vars(kind):
        return ""
    taken, own = signature(kind).parameters, vars(kind).get("__annotations__", {})
    missing = [name for name in own if name in node and name not in taken]
    if not missing:
        return ""
    name = kind.__name__
    return f"{name} does not take {missing[0]}: decorate {name} with @dataclass(kw_only=True, eq=False)"


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
