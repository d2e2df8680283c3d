"""What runs in a Ray worker: it answers messages, whichever node they are for.

A message travels with its node's context, and the context's state comes back with the reply: a worker
keeps nothing that another could not take over.
"""

import platform
import socket
from importlib.metadata import version

import torch
from flwr.app import Context, Message, RecordDict

from baselines.apps import client_app_of
from baselines.errors import UserError
from baselines.experiment import config, experiment
from baselines.grids.population import answer


class Worker:
    """Answers for the nodes of one experiment.

    Parameters
    ----------
    overrides : name the experiment
    configuration : its composed YAML, so that no folder with options need be on this machine
    versions : the driver's, as :func:`versions` gives them
    """

    def __init__(self, overrides: str, configuration: str, versions: dict[str, str]) -> None:
        config.take(overrides, configuration)
        self.overrides, self.expected = overrides, versions
        self.app = client_app_of(overrides)

    def unfit(self) -> str | None:
        """Prepare for messages; return what this machine lacks, None where it can answer."""
        ours = versions()
        for what, expected in self.expected.items():
            if ours[what] != expected:
                return f"{what} {ours[what]} there, {expected} here: install the same on every machine"
        try:
            this = experiment.load(self.overrides)
            torch.set_num_threads(this.settings.threads)
            _ = this.node_model, this.partitions
        except UserError as error:  # a device or a data set that is not there
            return str(error)
        return None

    def answer(self, request: Message, context: Context) -> tuple[Message, RecordDict]:
        """Return a node's reply, and its state after it."""
        reply = answer(self.app, request, context)
        return reply, context.state


def versions() -> dict[str, str]:
    """Return what must be equal on all machines for their results to be equal."""
    packages = {name: version(name) for name in ("flwr", "torch", "numpy")}
    return {"Python": platform.python_version(), "source": config.source_hash()} | packages


def machine() -> str:
    """Return this machine's name."""
    return socket.gethostname()
