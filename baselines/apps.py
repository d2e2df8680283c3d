"""The ServerApp and the ClientApp, the same for every runtime.

Flower's run configuration carries ``overrides``, the experiment as one shell-quoted string, ``output``, the
ServerApp's output folder, and ``commit``, that of the code, which a bundle does not contain.
"""

import os
from collections.abc import Callable
from functools import partial
from logging import LogRecord, getLogger
from pathlib import Path

import torch
from flwr.app import ConfigRecord, Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from clients import Node
from clients import client_app as make_client_app
from clients.batched.together import BatchedTrainer
from clients.round import get_record
from strategies import TooManyFailedRounds
from strategies.shared import protocol

from .engine.loggers import set_log_colors
from .engine.rounds import run_rounds
from .engine.run_folder import RunFolder, in_outputs, outputs_folder, resolve_output
from .errors import RunDiverged, UserError
from .experiment import closed
from .experiment import experiment as experiments
from .experiment.device import deterministic_algorithms, use_deterministic
from .experiment.experiment import Experiment
from .experiment.identity import source_hash
from .experiment.overrides import ROOT
from .experiment.preflight import check
from .grids.base import SuiteGrid
from .grids.superlink import PollingGrid
from .site.guard import Guard

REFUSAL_START = "the experiment is refused:"  # followed by the reason, in the log of a deployment
EXPLAINED_ERRORS = (
    UserError,
    TooManyFailedRounds,
    RunDiverged,
    OSError,
)  # errors reported in one line; OSError: a full disk

server_app = ServerApp()


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    """Run all rounds of the experiment that the run configuration names."""
    set_log_colors()
    try:
        overrides = str(context.run_config["overrides"])
        output = str(context.run_config.get("output") or "")
        if isinstance(grid, SuiteGrid) or closed.is_open():
            _run(overrides, grid, context, Path(output or f"outputs/{context.run_id}"))
        else:  # a submitted run
            closed.check(overrides, closed.own_targets())
            folder = resolve_output(output, context.run_id).relative_to(outputs_folder())
            os.umask(0o077)
            with in_outputs():
                _run(overrides, grid, context, folder)
    except EXPLAINED_ERRORS:
        if not isinstance(grid, SuiteGrid):  # Flower logs what its ServerApp raises
            getLogger("flwr").addFilter(_one_line)
        raise


def _run(overrides: str, grid: Grid, context: Context, folder: Path) -> None:
    experiment = experiments.load(overrides)
    check(experiment)
    torch.set_num_threads(experiment.settings.threads)
    with deterministic_algorithms(experiment.deterministic):
        run_on_grid(
            experiment, _grid_of(experiment, grid, str(context.run_config.get("commit", ""))), folder
        )


def _one_line(record: LogRecord) -> bool:
    """Remove the traceback from Flower's log if the error explains itself."""
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, EXPLAINED_ERRORS):
        line = f"{REFUSAL_START} {error}" if isinstance(error, UserError) else f"{error}"
        record.msg, record.args, record.exc_info = line, (), None
    return True


def _grid_of(experiment: Experiment, grid: Grid, commit: str) -> SuiteGrid:
    """Return a runtime's own grid unchanged; wrap Flower's in a polling grid with quorum and deadline.

    Raises
    ------
    UserError : for a quorum with simulated nodes
    """
    settings = experiment.settings
    if not isinstance(grid, SuiteGrid):
        return PollingGrid(grid, settings.quorum, settings.round_deadline, commit)
    if settings.quorum is not None:
        raise UserError(
            f"quorum={settings.quorum} is for deployments: choose runtime=superlink, or quorum=null"
        )
    return grid


def run_on_grid(experiment: Experiment, grid: SuiteGrid, output: Path) -> None:
    """Run all rounds on ``grid``, and draw the metrics, even after a failure."""
    folder = RunFolder(output, experiment)
    folder.make()  # first, as an unusable folder must raise a clear error
    try:
        run_rounds(experiment, grid, folder)
    finally:
        if folder.begun:
            _draw(output)


def _draw(folder: Path) -> None:
    """Draw the metrics; a figure that cannot be written does not fail the run."""
    from .reports import curves  # pandas and matplotlib take a second, and nodes never draw

    try:
        curves.draw_run(folder)
    except (OSError, ValueError) as error:  # ValueError: pandas', for an empty file
        getLogger("flwr").warning("no figure: %s", error)


def client_app_of(overrides: str) -> ClientApp:
    """Return the ClientApp of one experiment, for runtimes without a run configuration."""
    return make_client_app(partial(node_of, overrides))


def client_app_in(experiment: Experiment) -> ClientApp:
    """Return the ClientApp of an experiment that this process has built."""

    def node(_: Message, context: Context) -> Node:
        return _node_in(experiment, context, str(context.node_config.get(protocol.DATA, "")))

    return make_client_app(node)


def get_batched_trainer(overrides: str) -> BatchedTrainer:
    """Return the trainer of batched nodes for one experiment."""
    return BatchedTrainer(partial(node_of, overrides))


def node_of(overrides: str, message: Message, context: Context) -> Node:
    """Build a message's node; refuse a server that runs other code."""
    require_same_code(message)
    return _node_in(experiments.load(overrides), context, str(context.node_config.get(protocol.DATA, "")))


def require_same_code(message: Message) -> None:
    """Refuse a message from a server that runs other code."""
    server_hash = str(
        get_record(ConfigRecord, message.content, protocol.CONFIG).get(protocol.SOURCE_HASH, "")
    )
    if server_hash and server_hash != source_hash():
        raise OtherCode(
            f"this node's code ({ROOT}, {source_hash()}) is not the server's ({server_hash}): "
            "install the same version on both"
        )


class OtherCode(RuntimeError):
    """The node's code is not the server's."""

    @property
    def public(self) -> str:
        """The message that leaves the node."""
        return f"code: this node's ({source_hash()}) is not the server's: install the same version on both"


def _node_in(
    experiment: Experiment, context: Context, data: str, prepared: Callable[[], Path] | None = None
) -> Node:
    """Return the node of a partition, or of a site with its own ``data``."""
    torch.set_num_threads(experiment.settings.threads)
    use_deterministic(experiment.deterministic)
    own = context.node_config
    if protocol.PARTITION_ID in own:
        return experiment.node(int(own[protocol.PARTITION_ID]))
    return experiment.site(str(own.get(protocol.SITE, "")), data, prepared() if prepared else None)


guard = Guard()


def deployed_node_of(message: Message, context: Context) -> Node:
    """Build a deployed node, if its owner admits the experiment."""
    if closed.is_open():
        return node_of(str(context.run_config["overrides"]), message, context)
    require_same_code(message)
    admitted = guard.admit(message, context)
    node = _node_in(admitted.experiment, context, admitted.data, admitted.prepared)
    admitted.policy.require_rows(len(node.train) + len(node.test))
    return node


client_app = make_client_app(deployed_node_of, guard.describe, [guard])
