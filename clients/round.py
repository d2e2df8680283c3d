"""A node's round: from the server's message to the reply."""

import time
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import numpy as np
import torch
from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    ConfigScalar,
    Context,
    Message,
    MetricRecord,
    RecordDict,
)
from torch import nn

from strategies.shared import client_state, protocol
from strategies.shared.arrays import to_array_record, values_of
from strategies.shared.codecs import COMPRESSIONS
from strategies.shared.compression import Compression
from strategies.shared.seeding import Purpose, generator, torch_seed

from .compression import UpdateEncoder
from .correction import Correction, RoundStart, require_records
from .examples import Examples
from .frozen import Frozen, check_unchanged, complete_model, has_other_state, join_frozen
from .methods.fedcm import ClientMomentum, MimeMomentum
from .methods.feddyn import Dynamic
from .methods.fednova import EffectiveSteps
from .methods.fedproto import PrototypeDistance
from .methods.fedprox import GradientVariance, Proximal
from .methods.ifca import LeastLoss
from .methods.oort import SquaredLoss
from .methods.qfedavg import StartLoss
from .methods.scaffnew import LocalVariate
from .methods.scaffold import ControlVariate
from .privacy import DEMAND_KEYS, LocalNoise, check_demand
from .private import restore, withhold
from .tasks import Task
from .training import LocalTraining, draw_work, order_corrections

RecordType = TypeVar("RecordType", ArrayRecord, ConfigRecord)
# A strategy sends a key in the message's configuration; the correction with this ``config_key`` acts in that
# round. These are the ones that every node knows, in the order in which they act.
BUILT_IN: tuple[type[Correction], ...] = (
    ControlVariate,
    LocalVariate,
    GradientVariance,
    Proximal,
    Dynamic,
    ClientMomentum,
    MimeMomentum,
    EffectiveSteps,
    StartLoss,
    PrototypeDistance,
    LeastLoss,
    SquaredLoss,
)


def requested_corrections(
    config: Mapping[str, object], known: Sequence[type[Correction]] = BUILT_IN
) -> list[type[Correction]]:
    """Return those of the ``known`` corrections that a message with this configuration asks for."""
    return [kind for kind in known if config.get(kind.config_key)]


@dataclass(frozen=True)
class Node:
    """The data, model and state of one node.

    Parameters
    ----------
    model : overwritten by each message's arrays; shared by the nodes of one process
    training, task : how it trains, and for what
    train, test : its own examples; ``test`` may be empty
    seed : the experiment's seed
    own_model : returns the initial model that the node draws for itself; None where it draws none
    frozen : the model's frozen parameters, which then need not be sent; None where they are to be
    known_corrections : which corrections a message may ask it for, in the order in which they act
    known_compressions : which compressions
    """

    model: nn.Module
    training: LocalTraining
    task: Task
    train: Examples
    test: Examples
    seed: int = 0
    own_model: Callable[[], nn.Module] | None = None
    frozen: Frozen | None = None
    known_corrections: tuple[type[Correction], ...] = BUILT_IN
    known_compressions: tuple[type[Compression], ...] = COMPRESSIONS


class ClientRound:
    """A node's turn in one round: from the server's message to the reply.

    Parameters
    ----------
    node : its model is overwritten by the message's
    message : what the server asks
    context : the node's; its state holds what the node keeps between rounds
    """

    def __init__(self, node: Node, message: Message, context: Context) -> None:
        self.node, self.message, self.state = node, message, context.state
        # of rounds before; a node that was restarted has lost it
        self.has_saved_state = self._keeps_state()
        self.group = message.metadata.group_id  # of nodes with a model of their own; empty without groups
        self.memory = client_state.load(self.state, self.group) if self.group else self.state
        self.sent, self.frozen = load_sent(node, message, self.state)
        config = get_record(ConfigRecord, message.content, protocol.CONFIG)
        self.server_round = int(config[protocol.SERVER_ROUND])  # type: ignore[arg-type]
        if DEMAND_KEYS & context.node_config.keys():
            check_demand(context.node_config, config)
        self.partition_id = partition_id_of(context, config)
        self.place = {"server_round": self.server_round, "partition_id": self.partition_id}
        self.training = training_of(node, message, context)
        self.chosen: int | None = None
        if protocol.NUM_MODELS in config:
            self.chosen, self.sent = load_chosen(node, self._start(), self.training, self.sent, self.frozen)
        if self.training.private:
            restore(node.model, self.training.private, self.memory)
        self.noise: LocalNoise | None = None
        if protocol.PRIVACY in config:
            self.noise = LocalNoise.from_config(config, self.server_round, self.partition_id)
        self.coding: UpdateEncoder | None = None
        if protocol.COMPRESSION in config:
            self.coding = UpdateEncoder.from_config(
                config, node.model, self._draws, self.training.private, node.known_compressions
            )
        self._stored = set(self.memory)  # the records' names, before any correction
        self.corrections = self._corrections(config)
        self.started = time.perf_counter()

    def _corrections(self, config: ConfigRecord) -> list[Correction]:
        """Return the message's corrections, then those of ``client.corrections``, a compression's last.

        One that changes the model begins after the others: they refer to the model that was sent.
        """
        node, start = self.node, self._start()
        requested = requested_corrections(config, node.known_corrections)
        first = [kind.begin(start) for kind in requested if not kind.changes_initial_model]
        own = [begin(start) for begin in order_corrections(self.training.corrections)]
        last = [kind.begin(start) for kind in requested if kind.changes_initial_model]
        return first + own + last + (self.coding.make_corrections(node.model) if self.coding else [])

    def _start(self) -> RoundStart:
        content = self.message.content
        if self.frozen or self.chosen:
            content = RecordDict({**content, protocol.ARRAYS: self.sent})
        return make_round_start(
            self.node, self.training, content, self.memory, self.seed, self.partition_id
        )

    def _draws(self) -> np.random.Generator:
        return generator(self.node.seed, Purpose.COMPRESSION, **self.place)

    @cached_property
    def seed(self) -> int:
        """Decides the order of the node's examples in this round, and all that its model draws."""
        return torch_seed(self.node.seed, Purpose.LOCAL_TRAINING, **self.place)

    def run(self) -> Message:
        """Train; return the reply."""
        metrics = self.training(
            self.node.model,
            self.node.train,
            self.node.task,
            server_round=self.server_round,
            seed=self.seed,
            corrections=self.corrections,
            memory=self.memory,
        )
        return self.make_reply(metrics, time.perf_counter() - self.started)

    def make_reply(self, metrics: dict[str, float], seconds: float) -> Message:
        """Return the reply; under local privacy it has only what has noise or does not depend on the data."""
        model = self.node.model
        parameters = [p for p in model.parameters() if p.requires_grad]
        records = []
        for correction in self.corrections:
            records.append(correction.on_round_end(parameters, metrics))
            require_records(f"{type(correction).__name__}.on_round_end", records[-1])
        self._require_remembers()
        if self.training.private:
            withhold(model, self.training.private, self.sent, self.memory)
        if self.frozen:
            check_unchanged(model, self.frozen)
        metrics[protocol.CLIENT_SECONDS] = seconds
        metrics[protocol.NUM_EXAMPLES] = len(self.node.train)
        metrics[protocol.PARTITION_ID] = self.partition_id
        if self.chosen is not None:
            metrics[protocol.CHOSEN_MODEL] = self.chosen
        if self.noise is not None:
            self.noise.privatize_(model, self.sent)
            rate = {k: v for k, v in metrics.items() if k == protocol.LEARNING_RATE}
            metrics = {protocol.NUM_EXAMPLES: 1, protocol.PARTITION_ID: self.partition_id} | rate
            records = []
        if self.coding is not None:
            arrays = self.coding.make_records(model, self.sent, self.memory, self.frozen)
        else:
            values = {k: t.clone() for k, t in model.state_dict().items() if k not in self.frozen}
            arrays = {protocol.ARRAYS: to_array_record(values)}
        if self.group:
            client_state.save(self.memory, self.state, self.group)
        reply = make_reply(self.message, metrics, dict(ChainMap(arrays, *records)))
        if self.noise is not None:
            add_to_config(reply, {protocol.PRIVACY: protocol.LOCAL})
        elif self._keeps_state():
            add_to_config(reply, {protocol.KEPT: self.has_saved_state})
        return reply

    def _keeps_state(self) -> bool:
        """Say whether the node keeps anything between rounds, besides frozen parameters."""
        return len(self.state) > 0 and has_other_state(self.state)

    def _require_remembers(self) -> None:
        """Raise ``ValueError`` where a correction, or a personal method, stores what no checkpoint would hold."""
        if self.training.remembers or any(correction.remembers for correction in self.corrections):
            return
        writers = [*self.corrections, *filter(None, [self.training.personal])]
        if writers and (stored := sorted(self.memory.keys() - self._stored)):
            names = " or ".join(type(writer).__name__ for writer in writers)
            raise ValueError(
                f"{names} writes {stored} to the node's state: set remembers = True in its class"
            )


def training_of(node: Node, message: Message, context: Context) -> LocalTraining:
    """Return how a node trains in the round of a message, which may say for how many steps."""
    config = get_record(ConfigRecord, message.content, protocol.CONFIG)
    if (steps := config.get(protocol.LOCAL_STEPS)) is not None:
        return node.training.with_duration(steps=steps)  # type: ignore[arg-type]
    server_round = int(config[protocol.SERVER_ROUND])  # type: ignore[arg-type]
    return adapt_to_round(node.training, node.seed, server_round, partition_id_of(context, config))


def adapt_to_round(
    training: LocalTraining, seed: int, server_round: int, partition_id: int
) -> LocalTraining:
    """Return how a node trains in a round; a straggler does less."""
    if training.stragglers == 0:
        return training
    unit, full = training.work
    place = seed, server_round, partition_id
    work = draw_work(training.stragglers, training.least_work, full, *place)
    return replace(training, stragglers=0.0, **{unit: work})  # type: ignore[arg-type]


def get_record(kind: type[RecordType], content: RecordDict, name: str) -> RecordType:
    """Return a message's record; ``content.config_records`` would make a dictionary of them all first."""
    record = content[name]
    assert isinstance(record, kind)
    return record


def load_sent(node: Node, message: Message, state: RecordDict) -> tuple[ArrayRecord, Mapping[str, Array]]:
    """Load the model of a message; return it whole, and its frozen parameters by name."""
    arrays = get_record(ArrayRecord, message.content, protocol.ARRAYS)
    config = get_record(ConfigRecord, message.content, protocol.CONFIG)
    frozen: Mapping[str, Array] = {}
    if protocol.FROZEN in config:
        arrays, frozen = complete_model(arrays, config, node.frozen, state)
    load_arrays(node.model, arrays)
    return arrays, frozen


def make_round_start(
    node: Node,
    training: LocalTraining,
    content: RecordDict,
    memory: RecordDict,
    seed: int,
    partition_id: int,
) -> RoundStart:
    """Return the state of a node at the start of a round."""
    return RoundStart(
        node.model,
        node.train,
        node.task,
        training.optimizer,
        training.steps(len(node.train)),
        training.batch_size,
        content,
        memory,
        partition_id,
        node.own_model,
        seed,
    )


def load_chosen(
    node: Node,
    start: RoundStart,
    training: LocalTraining,
    sent: ArrayRecord,
    frozen: Mapping[str, Array],
) -> tuple[int, ArrayRecord]:
    """Load the model that the node chooses among a message's; return its number, and the whole model.

    Parameters
    ----------
    sent, frozen : the first of them whole, and the frozen parameters, which the others lack
    """
    count = int(start.config[protocol.NUM_MODELS])  # type: ignore[arg-type]
    models = [sent]
    for k in range(1, count):
        models.append(join_frozen(get_record(ArrayRecord, start.content, protocol.model_key(k)), frozen))
    if count == 1:
        return 0, sent

    def each() -> Iterator[nn.Module]:
        for arrays in models:
            load_arrays(node.model, arrays)
            restore(node.model, training.private, start.state)
            yield node.model

    requested = requested_corrections(start.config, node.known_corrections)
    chooses = [kind for kind in requested if kind.choose_model is not Correction.choose_model]
    chosen = chooses[-1].choose_model(start, each())
    if not 0 <= chosen < count:
        raise ValueError(f"{chooses[-1].__name__}.choose_model returns {chosen}: expected 0 to {count - 1}")
    load_arrays(node.model, models[chosen])
    return chosen, models[chosen]


@torch.no_grad()
def load_arrays(model: nn.Module, arrays: ArrayRecord) -> None:
    """Copy ``arrays`` into the model's parameters and buffers, by name."""
    state = model.state_dict()
    if state.keys() != arrays.keys():
        unknown = sorted(state.keys() ^ arrays.keys())
        raise ValueError(f"the message's model is not this node's: they differ in {unknown[:3]}")
    for name, tensor in state.items():
        values = values_of(arrays[name])
        if values.shape != tensor.shape:  # copy_ would broadcast
            theirs, ours = tuple(values.shape), tuple(tensor.shape)
            raise ValueError(f"the message's {name!r} has shape {theirs}, this node's model {ours}")
        tensor.copy_(values)


def partition_id_of(context: Context, config: ConfigRecord) -> int:
    """Return the node's own number, or the one that the server has given a site."""
    own = context.node_config.get(protocol.PARTITION_ID, config.get(protocol.PARTITION_ID))
    if own is None:
        raise ValueError("the server gave this site no number: choose a strategy of florilegium's")
    return int(own)  # type: ignore[arg-type]


def make_reply(
    message: Message, metrics: dict[str, float], arrays: dict[str, ArrayRecord] | None = None
) -> Message:
    """Return a reply with these metrics and arrays; it repeats the hash of frozen parameters."""
    content = RecordDict({protocol.METRICS: MetricRecord(dict(metrics)), **(arrays or {})})
    reply = Message(content, reply_to=message)
    config = message.content.get(protocol.CONFIG)
    if isinstance(config, ConfigRecord) and protocol.FROZEN in config:
        add_to_config(reply, {protocol.FROZEN: str(config[protocol.FROZEN])})
    return reply


def add_to_config(reply: Message, values: Mapping[str, ConfigScalar]) -> None:
    """Add values to a reply's configuration: facts about its node that are no metrics."""
    before = reply.content.config_records.get(protocol.CONFIG, ConfigRecord())
    reply.content[protocol.CONFIG] = ConfigRecord({**before, **values})
