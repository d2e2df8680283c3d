"""The guard of a deployed node, between Flower's messages and the ClientApp.

Of an error, only a code and a count leave the node; the full message goes to the node's own log. Before any
data are read, checks apply to the configuration (:mod:`baselines.experiment.closed`), the site's file
(:mod:`.policy`) and its budgets (:mod:`.record`), in this order.
"""

import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from logging import getLogger
from pathlib import Path
from typing import Any

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord

from baselines.errors import UserError
from baselines.experiment import closed
from baselines.experiment.experiment import Experiment, load
from baselines.experiment.identity import source_hash
from clients.privacy import PrivacyRefusal
from clients.round import get_record
from strategies.shared import protocol
from strategies.shared.arrays import values_of
from strategies.shared.flower_private import make_failed_reply

from .policy import Policy, read_leniently
from .record import SiteRecord

OUT_OF_MEMORY = "out of memory"
MAX_CHARACTERS = 4000  # characters of a text in the audit log
logger = getLogger("flwr")


def public_line(error: BaseException) -> str:
    """Return the message to the server for an error, without data, paths or code."""
    known = getattr(error, "public", None)
    if known is not None:
        return str(known)
    if isinstance(error, MemoryError | torch.OutOfMemoryError) or OUT_OF_MEMORY in str(error):
        return OUT_OF_MEMORY
    if isinstance(error, OSError):
        return "files: something cannot be read or written"
    if isinstance(error, UserError):
        return "configuration: this experiment cannot be built at this node"
    return "failed: an error that the node's own log explains"


@dataclass(frozen=True)
class AdmittedRun:
    """An experiment admitted by the owner of a node, with the owner's policy and record."""

    experiment: Experiment
    policy: Policy
    record: SiteRecord | None
    run_id: int

    @property
    def data(self) -> str:
        """The path of the site's own data; empty for a node that has a partition."""
        policy = self.policy
        return str(policy.place(policy.data)) if policy.data else ""

    @property
    def prepared(self) -> Callable[[], Path] | None:
        """A function that returns the folder for prepared data; None if the site keeps no record."""
        record = self.record
        return partial(record.prepared, self.run_id) if record else None


class Guard:
    """A Flower mod of a deployed ClientApp: it admits what the owner allows, and keeps the audit log.

    It answers one message at a time, and keeps its state until the next.
    """

    _error: BaseException | None = None
    _experiment: Experiment | None = None  # the admitted one
    _hides_counts = False  # whether the site counts epsilon, or demands privacy

    def admit(self, message: Message, context: Context) -> "AdmittedRun":
        """Return a message's experiment, if this node's owner admits it.

        Raises
        ------
        UserError, ValueError : with the message to the server as ``public``
        """
        overrides = str(context.run_config["overrides"])
        policy = Policy.of_node(context.node_config)
        self._hides_counts = policy.privacy is not None or policy.max_epsilon is not None
        closed.check(overrides, policy.targets)
        experiment = load(overrides)
        config = get_record(ConfigRecord, message.content, protocol.CONFIG)
        kind = message.metadata.message_type
        if kind != protocol.QUESTION:
            kind = kind.partition(".")[0]
        policy.admit(experiment, kind, config)
        record = SiteRecord(policy) if policy.file else None
        if record:
            record.charge(context.run_id, kind, config)
        self._experiment = experiment
        return AdmittedRun(experiment, policy, record, context.run_id)

    def describe(self, error: BaseException) -> str:
        """Log the full error here; return the message that leaves the node."""
        self._error = error
        if closed.is_open():
            return str(error) or type(error).__name__
        line = public_line(error)
        if self._hides_counts:  # counts of rows have no noise
            line = re.sub(r"\d+", "some", line)
        is_foreseen = isinstance(
            error, UserError | PrivacyRefusal
        )  # otherwise its owner needs the traceback
        trace = None if is_foreseen else error
        logger.error("refused here: %s; the server sees: %s", error, line, exc_info=trace)
        return line

    def __call__(self, message: Message, context: Context, call_next: Callable[..., Message]) -> Message:
        """Answer a message; errors become codes, and each message is written to the audit log."""
        if closed.is_open():
            return call_next(message, context)
        self._error = self._experiment = None
        self._hides_counts = False
        mask = os.umask(0o077)  # files are readable only by the node's user
        try:
            return self._answer(message, context, call_next)
        finally:
            os.umask(mask)

    def _answer(self, message: Message, context: Context, call_next: Callable[..., Message]) -> Message:
        try:
            reply = call_next(message, context)
        except Exception as error:  # a node's code or data may raise anything
            reply = make_failed_reply(message, self.describe(error))
        try:
            self._write_down(message, context, reply)
        except Exception as error:  # nothing leaves a site without an audit entry
            reply = make_failed_reply(message, self.describe(error))
        return reply

    def _write_down(self, message: Message, context: Context, reply: Message) -> None:
        """Write a line into the audit log of a node that has a file, even a damaged one."""
        name = context.node_config.get(protocol.SITE_FILE)
        if name is None or not Path(str(name)).parent.is_dir():
            return
        policy, damage = read_leniently(Path(str(name)))
        record, experiment = SiteRecord(policy), self._experiment
        entry = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "run": str(context.run_id),
            "asked": message.metadata.message_type,
            "round": _round_of(message),
            "code": source_hash(),
            "experiment": experiment.identity() if experiment else None,
            "overrides": _shorten(str(context.run_config.get("overrides", ""))),
            **_reply_described(message, reply),
            "epsilon": None if damage else _epsilon_of(record),  # the file states its delta
        }
        if self._error is not None:
            entry["refused"] = _shorten(str(self._error) or type(self._error).__name__)
        record.write(entry)
        if experiment and (_round_of(message) or 0) >= experiment.settings.rounds:
            record.forget(context.run_id)


def _shorten(text: str) -> str:
    """Return a text, or its beginning and a hash, so that one message cannot fill the log."""
    if len(text) <= MAX_CHARACTERS:
        return text
    return f"{text[:MAX_CHARACTERS]}... ({len(text)} signs, sha256 {sha256(text.encode()).hexdigest()})"


def _epsilon_of(record: SiteRecord) -> float | None:
    """Return the epsilon spent; None if the budgets cannot be read, which the refusal reports."""
    try:
        return record.epsilon()
    except UserError:
        return None


def _round_of(message: Message) -> int | None:
    config = message.content.get(protocol.CONFIG) if message.has_content() else None
    value = config.get(protocol.SERVER_ROUND) if isinstance(config, ConfigRecord) else None
    return value if isinstance(value, int) else None


def _reply_described(message: Message, reply: Message) -> dict[str, Any]:
    """Describe what leaves the node: rows used, bytes, and the norm of the update."""
    if not reply.has_content():
        return {}
    metrics = reply.content.get(protocol.METRICS)
    rows = metrics.get(protocol.NUM_EXAMPLES) if isinstance(metrics, MetricRecord) else None
    size = sum(record.count_bytes() for record in reply.content.array_records.values())
    return {"rows": rows, "bytes": size, "norm": _norm_sent(message, reply)}


def _norm_sent(message: Message, reply: Message) -> float | None:
    """Return the norm of the update that leaves the node; None if it is not a whole model."""
    metrics = reply.content.get(protocol.METRICS)
    chosen = metrics.get(protocol.CHOSEN_MODEL, 0) if isinstance(metrics, MetricRecord) else 0
    sent = reply.content.get(protocol.ARRAYS)
    received = message.content.get(protocol.model_key(int(chosen)))  # type: ignore[arg-type]
    if not isinstance(sent, ArrayRecord) or not isinstance(received, ArrayRecord):
        return None
    config = message.content.get(protocol.CONFIG)
    frozen = config.get(protocol.FROZEN_NAMES, []) if isinstance(config, ConfigRecord) else []
    if sent.keys() != received.keys() - set(frozen):  # type: ignore[arg-type]
        return None
    changes = (
        values_of(array).double() - values_of(received[name]).double() for name, array in sent.items()
    )
    return float(sum(float(change.square().sum()) for change in changes) ** 0.5)
