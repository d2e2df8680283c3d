"""Choices: which option a configuration takes in each group, and its values one by one."""

import shlex
from functools import cache
from typing import Any

from hydra import compose
from omegaconf import OmegaConf

from . import config
from .overrides import keyed


@cache
def choices(overrides: str) -> dict[str, str]:
    """Return the option that an override string takes in each group; that of one left alone, too.

    Raises
    ------
    UserError : as :func:`baselines.experiment.config.load`
    """
    config.load(overrides)  # says what is wrong
    with config.composing():
        cfg = compose("config", overrides=keyed(shlex.split(overrides)), return_hydra_config=True)
    chosen = OmegaConf.to_container(cfg.hydra.runtime.choices)
    assert isinstance(chosen, dict)
    ours = {str(group): option for group, option in chosen.items() if not str(group).startswith("hydra/")}
    return {group: "null" if option is None else str(option) for group, option in ours.items()}


def leaves(value: Any, prefix: str = "") -> dict[str, Any]:
    """Return nested settings as {dotted key: value}."""
    if not isinstance(value, dict):
        return {prefix: value}
    parts = (leaves(item, f"{prefix}.{key}" if prefix else str(key)) for key, item in value.items())
    return {key: leaf for part in parts for key, leaf in part.items()}
