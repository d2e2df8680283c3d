"""Kinds: a setting of a part is what the part's signature says: true or false, a number, another part.

Python takes ``flase`` for true, and compares a word with a number in an error that names neither.
"""

from collections.abc import Collection, Iterator
from functools import cache
from importlib import import_module
from inspect import signature
from types import NoneType, UnionType
from typing import Any, get_args

from omegaconf import DictConfig, ListConfig, OmegaConf

NUMBERS = {bool: "true or false", int: "a whole number", float: "a number"}
OURS = ("strategies.", "clients.", "baselines.")


def wrong(node: Any, given: Collection[str] = ()) -> Iterator[str]:
    """Yield, for each setting of a part and of the parts in it that is of another kind, what is wrong.

    ``given`` are the part's arguments that something else than its settings decides.
    """
    if isinstance(node, ListConfig):
        for item in node:
            yield from wrong(item)
    if not isinstance(node, DictConfig):
        return
    expected = _kinds(str(node.get("_target_")))
    for key in node:
        if OmegaConf.is_missing(node, key) or key in given:
            continue
        value = node[key]
        if isinstance(value, DictConfig | ListConfig):
            yield from wrong(value)
        elif key in expected and not _fits(value, expected[key]):
            name, words = node._get_full_key(key), _words(expected[key], key)
            yield f"{name}={'null' if value is None else value} is out of range: expected {words}"


@cache
def _kinds(target: str) -> dict[str, tuple[type, ...]]:
    """Return the kinds of those arguments of a class that can be told: numbers, and parts of ours."""
    try:
        module, _, name = target.rpartition(".")
        arguments = signature(getattr(import_module(module), name), eval_str=True).parameters
    except Exception:  # no such class, or one without a signature: who builds it says so
        return {}
    found = {name: _alternatives(argument.annotation) for name, argument in arguments.items()}
    return {name: kinds for name, kinds in found.items() if all(map(_is_known, kinds))}


def _alternatives(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if isinstance(annotation, UnionType) else (annotation,)


def _is_known(kind: Any) -> bool:
    if not isinstance(kind, type):
        return False
    return kind in NUMBERS or kind is NoneType or kind.__module__.startswith(OURS)


def _fits(value: object, kinds: tuple[type, ...]) -> bool:
    """Say whether a value is of one of the kinds; a whole number is a number, true is none."""
    return type(value) in kinds or (type(value) is int and float in kinds)


def _words(kinds: tuple[type, ...], key: object) -> str:
    """Return what to give instead."""
    words = [NUMBERS.get(kind, f"a part, chosen with {key}=...") for kind in kinds if kind is not NoneType]
    return " or ".join([*words, *["null"] * (NoneType in kinds)])
