"""What ends a round without a step, and a run: too many such rounds in a row."""

import logging
from collections.abc import Mapping

from flwr.app import Message

from strategies.shared.flower_private import UNREACHABLE

logger = logging.getLogger("flwr.strategies")
TRACEBACK = "Traceback (most recent call last):"  # begins what a reply's reason ends with
OF_CLIENT_FN = ("fitins.parameters", "evaluateins.parameters")  # what Flower's older clients look for
GIVE_FUNCTIONS = (
    "its ClientApp is made of a client_fn, as with NumPyClient, and answers older messages: give it "
    "functions with @app.train() and @app.evaluate()"
)


class NoStep(Exception):
    """Why a round takes no step."""


class Lacking(NoStep):
    """It has too few sound replies, or not that of a node that it needs."""


class TooManyFailedRounds(RuntimeError):
    """Too few nodes replied, or none moved the model, too many rounds in a row."""


def reason_of(reply: Message) -> str:
    """Return why a node failed, in one line, without its traceback."""
    reason, _, _ = (reply.error.reason or "").partition(TRACEBACK)
    if any(name in reason for name in OF_CLIENT_FN):
        return GIVE_FUNCTIONS
    return " ".join(reason.split()) or f"failed with code {reply.error.code}"


def end_if_alike(asked: int, answered: Mapping[int, Message]) -> None:
    """End a run in which all of several nodes have raised the same error: so they would in each round.

    Logs one traceback, where the nodes have sent theirs.

    Raises
    ------
    TooManyFailedRounds : with the error
    """
    errors = [r for r in answered.values() if r.has_error() and r.error.code not in UNREACHABLE]
    reasons = {reason_of(reply) for reply in errors}
    if asked < 2 or len(errors) < asked or len(reasons) > 1:
        return
    _, found, traceback = (errors[0].error.reason or "").partition(TRACEBACK)
    if found:
        logger.error("%s%s", found, traceback)
    raise TooManyFailedRounds(f"all {asked} nodes failed in round 1 with the same error: {reasons.pop()}")
