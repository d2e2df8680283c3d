"""Argument types: a setting of a part is what the part's signature says: a number, a list, another part.

Python takes ``flase`` for true, and compares a word with a number in an error that names neither.
"""

from collections.abc import Collection, Iterator, Mapping
from functools import cache
from importlib import import_module
from inspect import Parameter, signature
from typing import Any, Literal, Union

from omegaconf import DictConfig, ListConfig, OmegaConf

from .annotations import fits, words
from .misspelt import option_of

# What Hydra reads of a part besides its arguments.
OF_HYDRA: dict[str, Any] = {
    "_target_": str,
    "_partial_": bool,
    "_recursive_": bool,
    "_args_": list[Any],
    "_convert_": Literal["none", "partial", "object", "all"],
}
LONGEST = 80  # signs of a value in a line


def wrong(node: Any, given: Collection[str] = ()) -> Iterator[str]:
    """Yield, for each setting of a part and of the parts in it that is of another kind, what is wrong.

    ``given`` are the part's arguments that something else than its settings decides.
    """
    if isinstance(node, ListConfig):
        for item in node:
            yield from wrong(item)
    if not isinstance(node, DictConfig) or node._is_none():
        return
    expected = OF_HYDRA | _annotations(str(node.get("_target_"))) if "_target_" in node else {}
    for key in node:
        if OmegaConf.is_missing(node, key) or key in given:
            continue
        value = node[key]
        if key in expected and not fits(value, expected[key]):
            name = node._get_full_key(key)
            meant = option_of(value, name) if isinstance(value, str) else None
            hint = f"; did you mean {meant}?" if meant else ""
            yield out_of_range(name, value, words(expected[key], str(key))) + hint
        else:
            yield from wrong(value)


def out_of_range(name: str, value: object, expected: str) -> str:
    """Return the line that refuses a value."""
    text = "null" if value is None else str(value)
    if len(text) > LONGEST:
        text = f"{text[:LONGEST]}..."
    return f"{name}={text} is out of range: expected {expected}"


@cache
def _annotations(target: str) -> dict[str, Any]:
    """Return what a class' arguments may be; without an annotation: of the default's kind, or null."""
    arguments = _arguments(target)
    plain = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    return {name: _annotation(argument) for name, argument in arguments.items() if argument.kind in plain}


def takes(target: str, name: str) -> bool:
    """Say whether a class has an argument of this name; yes where it takes any, or does not say."""
    arguments = _arguments(target)
    anything = any(argument.kind is Parameter.VAR_KEYWORD for argument in arguments.values())
    return not arguments or anything or name in arguments


def _arguments(target: str) -> Mapping[str, Parameter]:
    try:
        module, _, name = target.rpartition(".")
        return signature(getattr(import_module(module), name), eval_str=True).parameters
    except Exception:  # no such class, or one without a signature: who builds it says so
        return {}


def _annotation(argument: Parameter) -> Any:
    if argument.annotation is not Parameter.empty:
        kinds = (argument.annotation, None) if argument.default is None else (argument.annotation,)
        return Union[kinds]  # noqa: UP007 (an annotation may be of any type)
    default = type(argument.default)
    if default in (bool, int, float):
        return (bool if default is bool else float) | None
    if default is tuple and all(type(item) in (int, float) for item in argument.default):
        return list[float] | None
    return Any
