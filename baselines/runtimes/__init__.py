"""Runtimes: where the ServerApp and the ClientApps run. The same seed gives the same result on each."""

from .inline import Inline
from .ray import Ray
from .superlink import SuperLink

__all__ = ["Inline", "Ray", "SuperLink"]
