"""Same setting: runs whose configurations differ in nothing that counts but their seed.

Each run has written a hash of that down. Two hashes are one setting where the configurations differ only in
how a number is written, 0 and 0.0, or in where a cluster is.
"""

import contextlib
import shlex
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError  # type: ignore[import-untyped]

from baselines.experiment.choices import leaves
from baselines.experiment.identity import BESIDE

ASIDE = ("seed", "data_root", "hydra", *BESIDE)  # what makes no other setting
ADDRESS = "runtime.address"  # nor does this, which is in its hash


def hashes(told: Mapping[Path, dict[str, Any]]) -> dict[Path, str]:
    """Return the setting of each run, by what environment.json tells of it."""
    written = {run: one.get("setting") or str(overrides(one)) for run, one in told.items()}
    first = {setting: run for run, setting in reversed(written.items())}
    known: dict[object, tuple[str, str]] = {}  # by value: a setting, and its text
    same: dict[str, str] = {}
    for setting in dict.fromkeys(written.values()):
        counts = _counts(first[setting], told[first[setting]].get("seed"))
        other, text = known.setdefault(_by_value(counts), (setting, str(counts)))
        same[setting] = other if counts and text != str(counts) else setting
    return {run: same[setting] for run, setting in written.items()}


def overrides(told: dict[str, Any]) -> dict[str, str]:
    """Return the overrides that decide a run's numbers, the seed aside: not where data and options lie."""
    items = (item.lstrip("+~").partition("=") for item in shlex.split(told["overrides"]))
    return {key: value for key, _, value in items if decides(key)}


def decides(key: str) -> bool:
    """Say whether a setting makes another one of a run."""
    return _is_hashed(key) and key != ADDRESS


def _is_hashed(key: str) -> bool:
    return key.partition(".")[0] not in ASIDE


def configuration(run: Path) -> dict[str, Any]:
    """Return the leaves of a run's configuration by their dotted names; nothing where it is damaged."""
    with contextlib.suppress(OSError):
        return _read(run / "config.yaml", (run / "config.yaml").stat().st_mtime_ns)
    return {}


@lru_cache(maxsize=4096)
def _read(path: Path, changed: int) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError, YAMLError, OmegaConfBaseException):
        settings = OmegaConf.to_container(OmegaConf.load(path))
        if isinstance(settings, dict):
            return leaves(settings)
    return {}


def _counts(run: Path, seed: object) -> dict[str, Any]:
    """Return the settings of a run that its hash is of; a seed that is the run's is none of them."""
    own = ((key, value) for key, value in sorted(configuration(run).items()) if _is_hashed(key))
    return {key: None if key.endswith(".seed") and value == seed else value for key, value in own}


def _by_value(value: Any) -> object:
    """Return what is equal where settings are: 0 and 0.0 are, 1 and true are not, an address is none."""
    if isinstance(value, dict):
        return tuple((key, _by_value(item)) for key, item in value.items() if key != ADDRESS)
    if isinstance(value, list):
        return tuple(map(_by_value, value))
    return value if type(value) in (int, float) else f"'{value}'"
