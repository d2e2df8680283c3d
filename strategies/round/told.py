"""Told: what a node has answered to the question who it is."""

from dataclasses import dataclass

from flwr.app import ConfigRecord, Message

from strategies.shared import protocol

from .failures import reason_of
from .replies import metrics_of

MOST_PARTITIONS = 1 << 20  # some weightings keep a number for each


@dataclass(frozen=True)
class Told:
    """A node's answer.

    Parameters
    ----------
    partition_id : the partition that it holds; None for a site, and where it does not say
    site : the name of a site with data of its own; empty for none
    fault : why the node takes no part, in one line; empty where nothing is wrong
    """

    partition_id: int | None = None
    site: str = ""
    fault: str = ""

    @classmethod
    def of(cls, reply: Message, most: int) -> "Told":
        """Read a reply; partition ids are below ``most``."""
        if reply.has_error():
            return cls(fault=reason_of(reply))
        config = reply.content.get(protocol.CONFIG)
        if isinstance(config, ConfigRecord) and protocol.SITE in config:
            refused = _line(str(config.get(protocol.REFUSED, "")))
            return cls(site=_line(str(config[protocol.SITE]))[:80] or "without a name", fault=refused)
        told = metrics_of(reply).get(protocol.PARTITION_ID)
        if type(told) is not int:  # the query of another ClientApp
            return cls(fault=_unfit(told, most))
        return cls(partition_id=told, fault="" if 0 <= told < most else _unfit(told, most))


def _line(text: str) -> str:
    return " ".join(text.split())


def _unfit(told: object, most: int) -> str:
    if told is None:
        return "no partition id in its answer"
    long = isinstance(told, int) and told.bit_length() > 64  # some are too long to be printed
    shown = "far too large" if long else str(told)[:20]
    return f"{protocol.PARTITION_ID} is {shown}, expected a whole number from 0 to {most - 1}"
