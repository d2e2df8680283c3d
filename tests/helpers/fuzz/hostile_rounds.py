"""The strategies that hostile replies are put to, two rounds of each, and how they end."""

import logging
import warnings
from collections.abc import Callable, Sequence
from functools import cache

import torch
from flwr.app import ArrayRecord, Message
from flwr.serverapp.strategy import Strategy

from helpers.federation import Federation
from helpers.fuzz.hostile_content import Unsound
from helpers.fuzz.hostile_envelopes import Sender
from helpers.hostile import Outcome, node_id, played
from helpers.server_data import Functions
from strategies import (
    AgreementMask,
    EffectiveRank,
    FedAdam,
    FedAvg,
    FedExP,
    Grouped,
    InverseVariance,
    LocalOnly,
    Overlap,
    Scaffold,
    SelectiveFedAvg,
    WeightErosion,
    WeightErosionForAll,
)

GROUPS: dict[str, tuple[int, ...]] = {"two": (0, 1), "one": (2,)}
NODES = 3
ASKS = {"query_partitions": True}  # as every experiment does
STRATEGIES: dict[str, Callable[[], Strategy]] = {
    "fedavg": lambda: FedAvg(**ASKS),
    "fedadam, masked": lambda: FedAdam(mask=AgreementMask(), **ASKS),
    "fedexp, averaged": lambda: FedExP(average_last=2, **ASKS),
    "inverse variance": lambda: FedAvg(weighting=InverseVariance(), **ASKS),
    "effective rank": lambda: FedAvg(weighting=EffectiveRank(), **ASKS),
    "scaffold": lambda: Scaffold(**ASKS),
    "weight erosion": WeightErosion,
    "weight erosion for all": lambda: WeightErosionForAll(inner=WeightErosion()),
    "groups of scaffold": lambda: Grouped(inner=Scaffold(**ASKS), groups=GROUPS),
    "local": lambda: LocalOnly(inner=FedAvg(**ASKS)),
    "selective": lambda: SelectiveFedAvg(
        inner=FedAvg(**ASKS), local_rounds=1, grouping=Overlap(0.1), server_data=Functions(_right_on)
    ),
}
Happens = Callable[[list[Message]], list[Message]]


def _right_on(models: Sequence[ArrayRecord]) -> torch.Tensor:
    return torch.stack([torch.from_numpy(m["fc.weight"].numpy().reshape(-1) > 0) for m in models])


def only(kind: str, when: tuple[int, ...], happens: Happens) -> Happens:
    """Let it happen to the replies to this kind of message, in these rounds."""
    rounds = 0

    def to(replies: list[Message]) -> list[Message]:
        nonlocal rounds
        if not replies or replies[0].metadata.message_type != kind:
            return replies
        rounds += 1
        return happens(replies) if rounds in when else replies

    return to


def where(kind: str, node: int, when: tuple[int, ...], to: Callable[[Message], list[Message]]) -> Happens:
    """Let it happen to the replies of one node."""
    sender = Sender(node_id(node), -1, 0)

    def happens(replies: list[Message]) -> list[Message]:
        return [*(sent for reply in sender.sent(replies) for sent in to(reply)), *sender.others(replies)]

    return only(kind, when, happens)


# ---- how it ended ----------------------------------------------------------------------------


@cache
def alone(name: str, kind: str, node: int, when: tuple[int, ...]) -> Outcome:
    """Return what comes of the others' replies alone."""
    return played(STRATEGIES[name](), where(kind, node, when, lambda reply: []), nodes=NODES)


@cache
def sound(name: str) -> Outcome:
    return played(STRATEGIES[name](), list, nodes=NODES)


def watched(
    name: str, happens: Happens, nodes: Federation | int = NODES
) -> tuple[Outcome | None, list[str], str]:
    """Return what comes of it, what was logged, and what is not as promised."""
    lines: list[str] = []
    logger, listener = logging.getLogger("flwr.strategies"), logging.Handler()
    listener.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger.addHandler(listener)
    logger.propagate = False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            outcome = played(STRATEGIES[name](), happens, nodes=nodes)
    except Unsound:
        raise
    except Exception as error:
        return None, lines, f"traceback: {type(error).__name__}: {error}"
    finally:
        logger.removeHandler(listener)
        logger.propagate = True
    broken = [line for line in lines if "\n" in line]
    return outcome, lines, f"not one line: {broken[0]!r}" if broken else ""
