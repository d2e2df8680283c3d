"""Sites that a runtime simulates on this machine: names and paths of data."""

import re
from collections.abc import Mapping
from pathlib import Path

from baselines.errors import UserError
from strategies.shared import protocol

NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,79}"


def check_sites(sites: Mapping[str, str], num_nodes: int, own_data: bool) -> dict[str, str]:
    """Return {name: absolute path}; ``own_data`` says whether the experiment has sites.

    Raises
    ------
    UserError : for sites where nodes hold partitions, a number other than ``num_nodes``, or an invalid name
    or path
    """
    if sites and not own_data:
        raise UserError("runtime.sites are nodes with data of their own: choose dataset=local")
    if sites and len(sites) != num_nodes:
        raise UserError(f"runtime.sites has {len(sites)} sites, and num_nodes={num_nodes}: set num_nodes")
    for name in sites:
        if not re.fullmatch(NAME, name):
            raise UserError(
                f"runtime.sites: {name!r} is not a valid name: expected letters, digits, . _ and -"
            )
    paths = {name: str(Path(path).expanduser().resolve()) for name, path in sites.items()}
    for name, path in paths.items():
        if '"' in path or "\n" in path:
            raise UserError(f"runtime.sites: the path of {name} has a quote or a line break: rename it")
    return paths


def node_configs(sites: Mapping[str, str], num_nodes: int) -> list[str]:
    """Return each node's ``--node-config`` for Flower: a site's name and path, or a partition."""
    if not sites:
        return [f"partition-id={k} num-partitions={num_nodes}" for k in range(num_nodes)]
    return [node_config(name, path) for name, path in sites.items()]


def node_config(name: str, data: str) -> str:
    """Return the ``--node-config`` of a site on this machine, with its own data."""
    return f'{protocol.SITE}="{name}" {protocol.DATA}="{data}"'


def site_config(name: str, file: str) -> str:
    """Return the ``--node-config`` of a site whose policy file says what an experiment may do."""
    return f'{protocol.SITE}="{name}" {protocol.SITE_FILE}="{file}"'
