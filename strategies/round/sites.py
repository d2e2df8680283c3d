"""Sites: nodes with data of their own, by the numbers that the roster gave them."""

from collections.abc import Mapping

from flwr.app import ConfigRecord, Message, RecordDict

from strategies.shared import protocol

from .replies import measures_of


def addressed(content: RecordDict, number: int, sites: Mapping[str, int]) -> RecordDict:
    """Return what a node is sent; a site has no partition of its own, and is told its number."""
    if number not in sites.values():
        return content
    config = ConfigRecord({**content.config_records[protocol.CONFIG], protocol.PARTITION_ID: number})
    return RecordDict({**content, protocol.CONFIG: config})


def by_site(sites: Mapping[str, int], judged: Mapping[int, Message]) -> dict[str, dict[str, float]]:
    """Return the metrics that each node has sent, by its site's name or as ``node 3``, by its partition.

    ``judged`` are replies by number.
    """
    names = {number: name for name, number in sites.items()}
    return {
        names.get(k, f"node {k}"): {
            key: value for key, value in measures_of(reply).items() if key != protocol.PARTITION_ID
        }
        for k, reply in judged.items()
    }
