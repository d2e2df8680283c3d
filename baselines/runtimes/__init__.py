"""Runtimes: where the ServerApp and the ClientApps run. The same seed gives the same result on each.

A launcher is imported on first use: Ray can start while others import torch, which takes seconds.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .inline import Inline
    from .ray import Ray
    from .superlink import SuperLink

__all__ = ["Inline", "Ray", "SuperLink"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(import_module(f".{name.lower()}", __name__), name)
