"""Hostile replies to a strategy: it names the node and goes on as without it, or it took what was sound."""

import logging
import warnings
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from random import Random

import torch
from flwr.app import ArrayRecord, Message
from flwr.serverapp.strategy import Strategy
from hostile import Outcome, difference, node_id, played
from hostile_content import CHANGES, Unsound, read_plainly
from hostile_envelopes import CHANGES_NOTHING, COUNTS_FOR_NOBODY, Sender, late
from verdict import Result

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
STRATEGIES: dict[str, Callable[[], Strategy]] = {
    "fedavg": FedAvg,
    "fedadam, masked": lambda: FedAdam(mask=AgreementMask()),
    "fedexp, averaged": lambda: FedExP(average_last=2),
    "inverse variance": lambda: FedAvg(weighting=InverseVariance()),
    "effective rank": lambda: FedAvg(weighting=EffectiveRank()),
    "scaffold": Scaffold,
    "weight erosion": WeightErosion,
    "weight erosion for all": lambda: WeightErosionForAll(inner=WeightErosion()),
    "groups of scaffold": lambda: Grouped(inner=Scaffold(), groups=GROUPS),
    "local": lambda: LocalOnly(inner=FedAvg()),
    "selective": lambda: SelectiveFedAvg(
        inner=FedAvg(), local_rounds=1, grouping=Overlap(0.1), right_on=_right_on
    ),
}
Happens = Callable[[list[Message]], list[Message]]
LEFT_OUT = {"train": "partition {} left out: ", "evaluate": "no test by partition {}: "}


def _right_on(model: ArrayRecord) -> torch.Tensor:
    return torch.from_numpy(model["fc.weight"].numpy().reshape(-1) > 0)


def try_one(random: Random, folder: Path, repeat: str) -> Result:
    """Tamper with a node's replies to one kind of message in one round, or in all."""
    name = random.choice([*STRATEGIES])
    kind, node = random.choice(("train", "train", "evaluate")), random.randrange(NODES)
    when = random.choice(((1,), (2,), (1, 2)))
    attack = random.choice((_content, _content, _content, _envelope))
    outcome, fault = attack(random, name, kind, node, when)
    return Result(f"{kind}: {outcome}", f"{name}, {kind}, node {node}: {fault}" if fault else "", repeat)


def _content(random: Random, name: str, kind: str, node: int, when: tuple[int, ...]) -> tuple[str, str]:
    seed, changes = random.randrange(2**32), random.choices(CHANGES, k=random.choice((1, 1, 2, 3)))

    def tampered(reply: Message) -> list[Message]:
        drawn = Random(seed)
        for change in changes:
            if reply.content:
                change(drawn, reply.content)
        return [reply]

    hostile, lines, fault = _watched(name, _where(kind, node, when, tampered))
    if fault or hostile is None:
        return "", fault
    named = [t for t in when if any(f"round {t}: {LEFT_OUT[kind].format(node)}" in line for line in lines)]
    if named == [*when]:
        return "left out by name", difference(hostile, _alone(name, kind, node, when))
    carried = ("arrays", "control") if "scaffold" in name else ("arrays",)
    rounds = iter(when)

    def read(replies: list[Message]) -> list[Message]:
        if next(rounds) in named:
            return this.others(replies)
        for reply in this.sent(replies):
            (sent,) = tampered(reply)
            sent.content = read_plainly(sent.content, arrays=carried if kind == "train" else ())
        return replies

    this = Sender(node_id(node), -1, 0)
    try:
        sound, _, fault = _watched(name, _only(kind, when, read))
    except Unsound as error:
        return "", f"accepted, but: {error}"
    return "taken as NumPy reads it", fault or difference(hostile, sound or [])


def _envelope(random: Random, name: str, kind: str, node: int, when: tuple[int, ...]) -> tuple[str, str]:
    attack = random.choice((*COUNTS_FOR_NOBODY, *CHANGES_NOTHING))
    when = (1, 2) if attack is late else when
    another = node_id((node + random.randrange(1, NODES)) % NODES)
    this = Sender(node_id(node), another, random.randrange(12))
    hostile, _, fault = _watched(name, _only(kind, when, partial(attack, this)))
    if fault or hostile is None:
        return "", f"{attack.__name__}: {fault}"
    sound = attack in CHANGES_NOTHING
    fault = difference(hostile, _sound(name) if sound else _alone(name, kind, node, when))
    return "counts once" if sound else "counts for nobody", f"{attack.__name__}: {fault}" if fault else ""


def _only(kind: str, when: tuple[int, ...], happens: Happens) -> Happens:
    """Let it happen to the replies to this kind of message, in these rounds."""
    rounds = 0

    def to(replies: list[Message]) -> list[Message]:
        nonlocal rounds
        if not replies or replies[0].metadata.message_type != kind:
            return replies
        rounds += 1
        return happens(replies) if rounds in when else replies

    return to


def _where(kind: str, node: int, when: tuple[int, ...], to: Callable[[Message], list[Message]]) -> Happens:
    """Let it happen to the replies of one node."""
    this = Sender(node_id(node), -1, 0)

    def happens(replies: list[Message]) -> list[Message]:
        return [*(sent for reply in this.sent(replies) for sent in to(reply)), *this.others(replies)]

    return _only(kind, when, happens)


# ---- how it ended ----------------------------------------------------------------------------


@cache
def _alone(name: str, kind: str, node: int, when: tuple[int, ...]) -> Outcome:
    """Return what comes of the others' replies alone."""
    return played(STRATEGIES[name](), _where(kind, node, when, lambda reply: []), nodes=NODES)


@cache
def _sound(name: str) -> Outcome:
    return played(STRATEGIES[name](), list, nodes=NODES)


def _watched(name: str, happens: Happens) -> tuple[Outcome | None, list[str], str]:
    """Return what comes of it, what was logged, and what is not as promised."""
    lines: list[str] = []
    logger, listener = logging.getLogger("flwr.strategies"), logging.Handler()
    listener.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger.addHandler(listener)
    logger.propagate = False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            outcome = played(STRATEGIES[name](), happens, nodes=NODES)
    except Unsound:
        raise
    except Exception as error:
        return None, lines, f"traceback: {type(error).__name__}: {error}"
    finally:
        logger.removeHandler(listener)
        logger.propagate = True
    broken = [line for line in lines if "\n" in line]
    return outcome, lines, f"not one line: {broken[0]!r}" if broken else ""
