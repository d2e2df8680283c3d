"""All imports of Flower's private names: an upgrade of Flower breaks here, and a test says so.

The grids of this suite do what a SuperLink does before a message exists and when they pass one on.
"""

import uuid
from importlib.metadata import version

from flwr.app import Context, Error, Message, RecordDict

TESTED_FLOWER = (
    "flwr>=1.39,<1.43"  # as in pyproject.toml: what scripts/test and scripts/test-newest have passed
)
try:
    from flwr.common.constant import SUPERLINK_NODE_ID, ErrorCode
    from flwr.common.logger import update_console_handler
    from flwr.supercore.run import Run
except ImportError as error:
    raise ImportError(
        f"Flower {version('flwr')} lacks what this project uses ({error}): it is tested with "
        f"{TESTED_FLOWER}; pip install '{TESTED_FLOWER}'"
    ) from error

UNREACHABLE_CODES = {  # codes of errors that come from the SuperLink, not from the node
    ErrorCode.MESSAGE_UNAVAILABLE,
    ErrorCode.REPLY_MESSAGE_UNAVAILABLE,
    ErrorCode.NODE_UNAVAILABLE,
}
__all__ = [
    "SUPERLINK_NODE_ID",
    "UNREACHABLE_CODES",
    "Run",
    "assign_message_id",
    "become_server",
    "make_failed_reply",
    "make_unanswered_reply",
    "server_context",
    "update_console_handler",
]


def become_server() -> None:
    """Give this process the identity that ``Message`` reads when the server makes one."""
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, SUPERLINK_NODE_ID


def assign_message_id(message: Message) -> None:
    """Give a message the id that a SuperLink would give it."""
    message.metadata.__dict__["_message_id"] = str(uuid.uuid4())


def make_failed_reply(request: Message, reason: str) -> Message:
    """Return the reply of a node whose ClientApp raised."""
    return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason), reply_to=request)


def make_unanswered_reply(request: Message) -> Message:
    """Return the SuperLink's error in place of a reply that nobody waits for any more."""
    reply = Message(Error(ErrorCode.REPLY_MESSAGE_UNAVAILABLE, "did not answer in time"), reply_to=request)
    reply.metadata.__dict__["_src_node_id"] = SUPERLINK_NODE_ID
    return reply


def server_context(run_config: dict[str, str]) -> Context:
    """Return the context of a ServerApp with this run configuration."""
    return Context(1, SUPERLINK_NODE_ID, {}, RecordDict(), dict(run_config))
