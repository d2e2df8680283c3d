"""Ask candidates before a round: metrics of their training examples at w[t], by which a strategy chooses.

The node's half is :mod:`clients.measures`. A question is a message of Flower's type ``query``, with an action of
its own, so it goes the way of all messages on every runtime. What nodes answer is checked as replies are.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from flwr.app import ArrayRecord, Message

from .client_registry import ClientRegistry
from .replies import Fault, MissingReplyKey, check_reply, metrics_of
from .strategy import Question, TooManyFailedRounds, stop_if_all_failed

logger = logging.getLogger("flwr.strategies")


@dataclass(frozen=True)
class Poll:
    """The question of one round, and its answers.

    Parameters
    ----------
    server_round, arrays : the round, and the model w[t] that was sent; nodes are asked once for both
    sent, replies : the messages, and the replies to them, by partition
    answers : by partition, the metrics of each sound reply
    faults : by partition, why another one's does not count
    """

    server_round: int
    arrays: ArrayRecord
    sent: Mapping[int, Message]
    replies: Mapping[int, Message]
    answers: Mapping[int, Mapping[str, float]]
    faults: Mapping[int, str]

    @classmethod
    def from_replies(
        cls,
        question: Question,
        server_round: int,
        arrays: ArrayRecord,
        sent: Mapping[int, Message],
        replies: Mapping[int, Message],
        registry: ClientRegistry,
    ) -> "Poll":
        """Read the replies; log those that do not count, and ask their nodes again who they are.

        Raises
        ------
        TooManyFailedRounds : in round 1, where all nodes failed with one error, or none can measure
        """
        answers, faults, lacking = dict[int, dict[str, float]](), dict[int, str](), set[int]()
        for k in sorted(sent):
            try:
                reply = check_reply(replies.get(k), k if registry.has_partition_ids else None)
                answers[k] = read_metrics(reply, question.metrics)
            except Fault as fault:
                faults[k] = str(fault)
                lacking |= {k} if isinstance(fault, MissingReplyKey) else set()
        if server_round == 1:
            stop_if_all_failed(len(sent), replies)
            if lacking and lacking == replies.keys():
                raise TooManyFailedRounds(
                    f"each of the {len(lacking)} nodes that answered before round 1 {faults[min(lacking)]}: "
                    "a question needs this project's ClientApp (clients.client_app), or one that does the same"
                )
        if faults:
            registry.recheck({replies[k].metadata.src_node_id for k in faults if k in replies})
        for k, reason in faults.items():
            logger.warning("round %d: %s is not chosen: %s", server_round, registry.display_name(k), reason)
        return cls(server_round, arrays, sent, replies, answers, faults)


def read_metrics(reply: Message, names: tuple[str, ...]) -> dict[str, float]:
    """Return the metrics of these names in a checked reply, whose numbers are finite; raise ``Fault`` without."""
    metrics = metrics_of(reply)
    for name in names:
        if type(metrics.get(name)) not in (int, float):
            raise MissingReplyKey(f"sent no {name!r}")
    return {name: float(metrics[name]) for name in names}  # type: ignore[arg-type]
