"""Hostile replies to a strategy: it names the node and goes on as without it, or it took what was sound."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

from flwr.app import Message, MetricRecord, RecordDict

from helpers.federation import Federation
from helpers.fuzz.hostile_content import CHANGES, Unsound, read_plainly
from helpers.fuzz.hostile_envelopes import CHANGES_NOTHING, COUNTS_FOR_NOBODY, Sender, late
from helpers.fuzz.hostile_rounds import NODES, STRATEGIES, alone, only, sound, watched, where
from helpers.fuzz.verdict import Result
from helpers.hostile import difference, node_id, trained

LEFT_OUT = {"train": "partition {} left out: ", "evaluate": "partition {} did not evaluate: "}


def try_one(random: Random, folder: Path, repeat: str) -> Result:
    """Tamper with a node's replies to one kind of message in one round, or in all."""
    name = random.choice([*STRATEGIES])
    kind, node = random.choice(("train", "train", "evaluate")), random.randrange(NODES)
    when = random.choice(((1,), (2,), (1, 2)))
    attack = random.choice((_content, _content, _content, _envelope, _query))
    kind = "query" if attack is _query else kind
    outcome, fault = attack(random, name, kind, node, when)
    return Result(f"{kind}: {outcome}", f"{name}, {kind}, node {node}: {fault}" if fault else "", repeat)


def _tampered(random: Random) -> Callable[[Message], Message]:
    """Return what changes replies, each in the same way."""
    seed, changes = random.randrange(2**32), random.choices(CHANGES, k=random.choice((1, 1, 2, 3)))

    def tampered(reply: Message) -> Message:
        drawn = Random(seed)
        for change in changes:
            if reply.content:
                change(drawn, reply.content)
        return reply

    return tampered


def _content(random: Random, name: str, kind: str, node: int, when: tuple[int, ...]) -> tuple[str, str]:
    tampered = _tampered(random)
    hostile, lines, fault = watched(name, where(kind, node, when, lambda reply: [tampered(reply)]))
    if fault or hostile is None:
        return "", fault
    named = [t for t in when if any(f"round {t}: {LEFT_OUT[kind].format(node)}" in line for line in lines)]
    if named == [*when]:
        return "left out by name", difference(hostile, alone(name, kind, node, when))
    carried = ("arrays", "control") if "scaffold" in name else ("arrays",)
    rounds = iter(when)

    def read(replies: list[Message]) -> list[Message]:
        if next(rounds) in named:
            return sender.others(replies)
        for reply in sender.sent(replies):
            reply.content = read_plainly(tampered(reply).content, arrays=carried if kind == "train" else ())
        return replies

    sender = Sender(node_id(node), -1, 0)
    try:
        plain, _, fault = watched(name, only(kind, when, read))
    except Unsound as error:
        return "", f"accepted, but: {error}"
    return "taken as NumPy reads it", fault or difference(hostile, plain or [])


def _envelope(random: Random, name: str, kind: str, node: int, when: tuple[int, ...]) -> tuple[str, str]:
    attack = random.choice((*COUNTS_FOR_NOBODY, *CHANGES_NOTHING))
    when = (1, 2) if attack is late else when
    another = node_id((node + random.randrange(1, NODES)) % NODES)
    sender = Sender(node_id(node), another, random.randrange(12))
    hostile, _, fault = watched(name, only(kind, when, partial(attack, sender)))
    if fault or hostile is None:
        return "", f"{attack.__name__}: {fault}"
    harmless = attack in CHANGES_NOTHING
    fault = difference(hostile, sound(name) if harmless else alone(name, kind, node, when))
    return (
        "counts once" if harmless else "counts for nobody",
        f"{attack.__name__}: {fault}" if fault else "",
    )


class _Asked(Federation):
    """Nodes of which one answers the query for its partition as ``tampers`` has it."""

    def __init__(self, hostile: int, tampers: Callable[[Message], Message]) -> None:
        super().__init__(trained, NODES)
        self.hostile, self.tampers = hostile, tampers

    def _answer(self, message: Message) -> Message:
        reply = super()._answer(message)
        queried = message.metadata.message_type == "query" and message.metadata.dst_node_id == self.hostile
        return self.tampers(reply) if queried else reply


def _query(random: Random, name: str, kind: str, node: int, when: tuple[int, ...]) -> tuple[str, str]:
    tampered = _tampered(random)

    def plain(reply: Message) -> Message:
        partition_id = next(iter(tampered(reply).content.metric_records.values()), {}).get("partition-id")
        reply.content = RecordDict({"metrics": MetricRecord({"partition-id": partition_id})})
        return reply

    hostile, lines, fault = watched(name, list, _Asked(node_id(node), tampered))
    if fault or hostile is None:
        return "", fault
    absent = Federation(trained, NODES)
    absent.online.remove(node_id(node))
    named = any(f"node {node_id(node)} does not say which partition it holds" in line for line in lines)
    expected, _, fault = watched(name, list, absent if named else _Asked(node_id(node), plain))
    fault = fault or difference(hostile, expected or [])
    return "never asked, by name" if named else "holds what it tells", fault
