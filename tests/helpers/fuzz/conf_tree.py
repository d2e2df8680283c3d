"""The tree of conf/, read from its files: groups, options, and the settings of each with defaults."""

from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from baselines.experiment.overrides import CONF, SHARED

NO_CHOICE = ("hydra", "experiment")  # Hydra's own; a paper's settings, which need its data
GROUPS = sorted(path.name for path in CONF.iterdir() if path.is_dir() and path.name not in NO_CHOICE)


@cache
def options(group: str) -> list[str]:
    """Return the names that can be chosen in a group."""
    return sorted(path.stem for path in (CONF / group).glob("*.yaml") if path.stem not in SHARED)


@cache
def default_options() -> dict[str, str | None]:
    """Return the option of each group that config.yaml names."""
    lines = _read(CONF / "config.yaml")["defaults"]
    named = [item for line in lines if isinstance(line, dict) for item in line.items()]
    return {group: option for group, option in named if group in GROUPS}


@cache
def top_level() -> dict[str, Any]:
    """Return {setting: default} of what belongs to no group."""
    settings = _read(CONF / "config.yaml")
    return {key: value for key, value in settings.items() if key not in ("defaults", "hydra")}


@cache
def settings_of(group: str, option: str) -> dict[str, Any]:
    """Return {dotted key: default} of an option, its inner nodes and those of its templates included."""
    return _flat(_merged(CONF / group, option), group)


def _merged(folder: Path, option: str) -> dict[str, Any]:
    content = _read(folder / f"{option}.yaml")
    merged: dict[str, Any] = {}
    for parent in content.pop("defaults", []):
        if isinstance(parent, str) and parent != "_self_":
            name, _, package = parent.partition("@")
            inherited = _merged(folder, name)
            merged |= {package: inherited} if package else inherited
    for key, value in content.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = merged[key] | value if both else value
    return merged


def _flat(settings: dict[str, Any], prefix: str) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        name = f"{prefix}.{key}"
        flat[name] = value
        if isinstance(value, dict):
            flat |= _flat(value, name)
    return flat


def _read(path: Path) -> dict[str, Any]:
    content = OmegaConf.to_container(OmegaConf.load(path))  # which takes 1e-3 for a number, as Hydra does
    assert isinstance(content, dict)
    return content
