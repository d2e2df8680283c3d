"""Peers: what else a user could run. Those that are not installed are skipped, with a line that says so."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec

from rich.console import Console

from .timing import Contenders


@dataclass(frozen=True)
class Peer:
    """Another framework on the same work.

    Parameters
    ----------
    name : as the table has it
    module : which has to be installed
    install : the command that installs it
    measure : returns the seconds of a round
    """

    name: str
    module: str
    install: str
    measure: Callable[[], float]


def present(workload: str, peers: Sequence[Peer], wanted: bool) -> Contenders:
    """Return the peers that can run, by name; print a line for every other one."""
    console = Console(highlight=False, soft_wrap=True, markup=False)
    found: Contenders = {}
    for peer in peers:
        if find_spec(peer.module) is None:
            console.print(f"{workload}: {peer.name} skipped, it is not installed: {peer.install}")
        elif not wanted:
            console.print(f"{workload}: {peer.name} skipped, it takes a minute or more: add --peers")
        else:
            found[peer.name] = peer.measure
    return found
