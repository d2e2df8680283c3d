"""Choices: which option a configuration takes in each group, and its values one by one."""

from typing import Any

from . import config


def choices(overrides: str) -> dict[str, str]:
    """Return the option that an override string takes in each group; that of one left alone, too.

    Raises
    ------
    UserError : as :func:`baselines.experiment.config.load`
    """
    taken = config.composed(overrides).options.items()
    ours = {group: option for group, option in taken if not group.startswith("hydra/")}
    return {group: "null" if option is None else str(option) for group, option in ours.items()}


def leaves(value: Any, prefix: str = "") -> dict[str, Any]:
    """Return nested settings as {dotted key: value}."""
    if not isinstance(value, dict):
        return {prefix: value}
    parts = (leaves(item, f"{prefix}.{key}" if prefix else str(key)) for key, item in value.items())
    return {key: leaf for part in parts for key, leaf in part.items()}
