"""What is not public in Flower, in one place: an upgrade of Flower breaks here, and a test says so.

The inline grid does what a SuperLink does before a message exists and when it passes one on; the simulation
engine is started from Python with a run configuration.
"""

import uuid
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common import EventType
from flwr.common.constant import SUPERLINK_NODE_ID, ErrorCode
from flwr.serverapp import ServerApp
from flwr.supercore.run import Run

UNREACHABLE = {  # codes of errors that come from the SuperLink, not from the node
    ErrorCode.MESSAGE_UNAVAILABLE,
    ErrorCode.REPLY_MESSAGE_UNAVAILABLE,
    ErrorCode.NODE_UNAVAILABLE,
}
__all__ = [
    "SUPERLINK_NODE_ID",
    "UNREACHABLE",
    "Run",
    "become_server",
    "failed",
    "server_context",
    "simulate",
    "stamp",
]


def become_server() -> None:
    """Give this process the identity that ``Message`` reads when the server makes one."""
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, SUPERLINK_NODE_ID


def stamp(message: Message) -> None:
    """Give a message the id that a SuperLink would give it."""
    message.metadata.__dict__["_message_id"] = str(uuid.uuid4())


def failed(request: Message, reason: str) -> Message:
    """Return the reply of a node whose ClientApp raised."""
    return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason), reply_to=request)


def server_context(run_config: dict[str, str]) -> Context:
    """Return the context of a ServerApp with this run configuration."""
    return Context(1, SUPERLINK_NODE_ID, {}, RecordDict(), dict(run_config))


def simulate(
    server_app: ServerApp,
    client_app: ClientApp,
    num_nodes: int,
    backend: dict[str, Any],
    run_config: dict[str, str],
) -> None:
    """Start the simulation engine from Python with a run configuration.

    Flower's public ``run_simulation`` is deprecated and gives the ServerApp an empty run
    configuration; its successor, ``flwr run``, needs an app bundle.
    """
    from flwr.simulation.run_simulation import _run_simulation

    _run_simulation(
        num_supernodes=num_nodes,
        exit_event=EventType.PYTHON_API_RUN_SIMULATION_LEAVE,
        server_app=server_app,
        client_app=client_app,
        backend_config=backend,
        server_app_context=server_context(run_config),
    )
