"""Peers: what else a user could run. Those that are not installed are skipped, with a line that says so."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec

from rich.console import Console

from baselines.experiment import experiment

from .plain import Client, ClientOf
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
            console.print(f"{workload}: {peer.name} skipped: add --peers to measure it too")
        else:
            found[peer.name] = peer.measure
    return found


def flower(setting: str, client_of: ClientOf = Client.of, rounds: int = 4, workers: int = 2) -> Peer:
    """Return Flower's own simulation: ``workers`` Ray workers with one thread each.

    The first of a measurement's ``rounds`` rounds is not counted.
    """

    def measure() -> float:
        from .flower import seconds

        return seconds(setting, client_of, rounds, workers)

    return Peer("Flower on Ray", "ray", "pip install 'flwr[simulation]'", measure)


def pfl_research(setting: str, client_of: ClientOf = Client.of, rounds: int = 3) -> Peer:
    """Return pfl-research in one process.

    The first of a measurement's ``rounds`` rounds is not counted.
    """

    def measure() -> float:
        from .pfl_research import seconds

        this = experiment.load(setting)
        clients = [client_of(this, k) for k in range(this.settings.num_nodes)]
        return seconds(this.model(), clients, rounds)

    return Peer("pfl-research", "pfl", "pip install pfl", measure)
