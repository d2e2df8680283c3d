"""Annotations: may a value of a configuration be what a signature says, and what to give instead."""

import math
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from importlib import import_module
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from omegaconf import DictConfig, ListConfig

SCALARS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
GENERAL = ("builtins", "collections.abc")  # lists and the like; an array is iterable, too
OURS = ("strategies.", "clients.", "baselines.")


def fits(value: object, annotation: Any) -> bool:
    """Say whether a value may be meant; what no configuration can state (a tensor) fits none but a part."""
    origin = get_origin(annotation)
    if origin in (Union, UnionType):
        return _fits_one(value, get_args(annotation))
    if origin is Literal:
        return value in get_args(annotation)
    if annotation in (None, NoneType):
        return value is None
    if annotation in SCALARS:
        return _fits_scalar(value, annotation)
    if origin is Callable or _is_ours(annotation):
        return is_part(value, annotation)
    kind = origin or annotation
    if isinstance(kind, type) and issubclass(kind, Mapping):
        return isinstance(value, DictConfig) and not value._is_none()
    if isinstance(kind, type) and issubclass(kind, Iterable) and kind.__module__ in GENERAL:
        return isinstance(value, ListConfig) and _fit(value, kind, get_args(annotation))
    return True


def _fits_one(value: object, annotations: Collection[Any]) -> bool:
    return any(
        fits(value, annotation) if _is_known(annotation) else is_part(value, annotation)
        for annotation in annotations
    )


def _is_known(annotation: Any) -> bool:
    """Say whether :func:`fits` can tell."""
    plain = annotation in (None, NoneType, Any, object) or annotation in SCALARS
    return plain or get_origin(annotation) is not None or _is_ours(annotation)


def _is_ours(annotation: Any) -> bool:
    return isinstance(annotation, type) and annotation.__module__.startswith(OURS)


def _fits_scalar(value: object, kind: type) -> bool:
    """Say whether a value is of a kind; true and NaN are no numbers, nor is what no float can hold."""
    if kind is float and type(value) is int:
        return abs(value) <= sys.float_info.max
    return type(value) is kind and not (isinstance(value, float) and math.isnan(value))


def _fit(values: ListConfig, kind: type, kinds: tuple[Any, ...]) -> bool:
    """Say whether a list's items fit: of a tuple each its own, of anything else all the same."""
    if kind is tuple and kinds and kinds[-1] is not Ellipsis:
        pairs = zip(values, kinds, strict=False)
        return len(values) == len(kinds) and all(fits(value, kind) for value, kind in pairs)
    finite = not any(isinstance(value, float) and math.isinf(value) for value in values)
    return finite and (not kinds or all(fits(value, kinds[0]) for value in values))


def is_part(value: object, kind: Any) -> bool:
    """Say whether a value names what to build; where that is a class, it must be of the kind.

    Of a function's result nobody knows, and a target that is not there its builder names.
    """
    if not isinstance(value, DictConfig) or value._is_none() or "_target_" not in value:
        return False
    target = found(str(value.get("_target_")))
    if not isinstance(target, type):
        return True
    partial = value.get("_partial_", False)
    if get_origin(kind) is Callable:
        return partial or any("__call__" in vars(base) for base in target.__mro__)
    return not isinstance(kind, type) or (issubclass(target, kind) and not partial)


def found(name: str) -> Any:
    """Return what a dotted name stands for; None where there is no such thing."""
    module, _, last = name.rpartition(".")
    try:
        return getattr(import_module(module), last)
    except Exception:
        return None


def words(annotation: Any, key: str) -> str:
    """Return what to give instead."""
    if get_origin(annotation) in (Union, UnionType):
        kinds = sorted(get_args(annotation), key=lambda kind: kind is NoneType)  # null comes last
        return " or ".join(words(kind, key) for kind in kinds if _is_known(kind))
    if annotation in (None, NoneType):
        return "null"
    if annotation in SCALARS:
        return SCALARS[annotation]
    origin = get_origin(annotation)
    if origin is Literal:
        return f"one of {', '.join(map(str, get_args(annotation)))}"
    if origin is Callable:
        return "a part that can be called (a class with _partial_: true)"
    if _is_ours(annotation):
        return f"a part, chosen with {key}=..."
    kind = origin or annotation
    if isinstance(kind, type) and issubclass(kind, Mapping):
        return "a mapping"
    return f"a list{_of(annotation)}"


def _of(annotation: Any) -> str:
    texts = " of texts"
    plural = {int: " of whole numbers", float: " of numbers", str: texts, str | None: f"{texts} or null"}
    kinds = [kind for kind in get_args(annotation) if kind is not Ellipsis]
    return plural.get(kinds[0], "") if len(set(kinds)) == 1 else f" of {len(kinds)}" * (len(kinds) > 1)
