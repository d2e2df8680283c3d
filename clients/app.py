"""The one ClientApp: it answers for its partition, trains, and evaluates.

A node knows nothing of the strategy it serves: what a round asks of it stands in the message.
"""

import time
from collections import ChainMap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import nn

from strategies.shared import protocol
from strategies.shared.arrays import pack, view
from strategies.shared.seeding import Purpose, torch_seed

from .correction import Correction, RoundStart
from .evaluation import evaluate
from .examples import Examples
from .tasks import Task
from .training import LocalTraining

Kind = TypeVar("Kind", ArrayRecord, ConfigRecord)


@dataclass(frozen=True)
class Node:
    """What one node works with.

    Parameters
    ----------
    model : overwritten by each message's arrays; shared by the nodes of one process
    training, task : how it trains, and for what
    train, test : its own examples; ``test`` may be empty
    seed : the experiment's seed
    """

    model: nn.Module
    training: LocalTraining
    task: Task
    train: Examples
    test: Examples
    seed: int = 0


def client_app(node_of: Callable[[Message, Context], Node]) -> ClientApp:
    """Return a ClientApp whose nodes are built by ``node_of``."""
    app = ClientApp()

    @app.query()
    def query(message: Message, context: Context) -> Message:
        return _reply(message, {protocol.PARTITION_ID: _partition_id(context)})

    @app.train()
    def train(message: Message, context: Context) -> Message:
        return Turn(node_of(message, context), message, context).taken()

    @app.evaluate()
    def evaluate_(message: Message, context: Context) -> Message:
        node = node_of(message, context)
        load(node.model, record_of(ArrayRecord, message.content, protocol.ARRAYS))
        metrics: dict[str, float] = {protocol.NUM_EXAMPLES: len(node.test)}
        if len(node.test):
            metrics |= evaluate(node.model, node.test, node.task)
        return _reply(message, metrics)

    return app


class Turn:
    """A node's turn in one round: from the server's message to the reply.

    Parameters
    ----------
    node : its model is overwritten by the message's
    message : what the server asks
    context : the node's; its state holds what the node keeps between rounds
    """

    def __init__(self, node: Node, message: Message, context: Context) -> None:
        self.node, self.message, self.state = node, message, context.state
        load(node.model, record_of(ArrayRecord, message.content, protocol.ARRAYS))
        config = record_of(ConfigRecord, message.content, protocol.CONFIG)
        self.server_round = int(config[protocol.SERVER_ROUND])  # type: ignore[arg-type]
        self.partition_id = _partition_id(context)
        self.corrections = self._corrections(config)
        self.started = time.perf_counter()

    def _corrections(self, config: ConfigRecord) -> list[Correction]:
        """Return what the message asks for, then what ``client.corrections`` names."""
        node = self.node
        start = RoundStart(
            node.model,
            node.train,
            node.task,
            node.training.optimizer,
            node.training.steps(len(node.train)),
            node.training.batch_size,
            self.message.content,
            self.state,
            self.partition_id,
        )
        asked = [kind.begin(start) for kind in Correction.asked(config)]
        return asked + [begin(start) for begin in node.training.corrections.values()]

    @property
    def seed(self) -> int:
        """What decides the order of the node's examples in this round, and all that its model draws."""
        return torch_seed(
            self.node.seed,
            Purpose.LOCAL_TRAINING,
            server_round=self.server_round,
            partition_id=self.partition_id,
        )

    def taken(self) -> Message:
        """Train; return the reply."""
        metrics = self.node.training(
            self.node.model,
            self.node.train,
            self.node.task,
            server_round=self.server_round,
            seed=self.seed,
            corrections=self.corrections,
            memory=self.state,
        )
        return self.reply(metrics, time.perf_counter() - self.started)

    def reply(self, metrics: dict[str, float], seconds: float) -> Message:
        """Return what the server gets of a training that took ``seconds``."""
        model = self.node.model
        parameters = [p for p in model.parameters() if p.requires_grad]
        records = [correction.finish(parameters, metrics) for correction in self.corrections]
        metrics[protocol.CLIENT_SECONDS] = seconds
        metrics[protocol.NUM_EXAMPLES] = len(self.node.train)
        metrics[protocol.PARTITION_ID] = self.partition_id
        state = {name: pack(tensor.numpy(force=True)) for name, tensor in model.state_dict().items()}
        arrays = {protocol.ARRAYS: ArrayRecord(state)}
        return _reply(self.message, metrics, dict(ChainMap(arrays, *records)))


def record_of(kind: type[Kind], content: RecordDict, name: str) -> Kind:
    """Return a message's record; ``content.config_records`` would make a dictionary of them all first."""
    record = content[name]
    assert isinstance(record, kind)
    return record


def check_training(training: LocalTraining, config: Mapping[str, object]) -> None:
    """Raise ``ValueError`` where a node could not do what messages with this configuration ask for."""
    for kind in Correction.asked(config):
        kind.check(training.optimizer, config)


@torch.no_grad()
def load(model: nn.Module, arrays: ArrayRecord) -> None:
    """Copy ``arrays`` into the model's parameters and buffers, by name."""
    state = model.state_dict()
    if state.keys() != arrays.keys():
        unknown = sorted(state.keys() ^ arrays.keys())
        raise ValueError(f"the message's model is not this node's: they differ in {unknown[:3]}")
    for name, tensor in state.items():
        values = torch.from_numpy(view(arrays[name]).copy())
        if values.shape != tensor.shape:  # copy_ would broadcast
            theirs, ours = tuple(values.shape), tuple(tensor.shape)
            raise ValueError(f"the message's {name!r} has shape {theirs}, this node's model {ours}")
        tensor.copy_(values)


def _partition_id(context: Context) -> int:
    return int(context.node_config[protocol.PARTITION_ID])


def _reply(
    message: Message, metrics: dict[str, float], arrays: dict[str, ArrayRecord] | None = None
) -> Message:
    content = RecordDict({protocol.METRICS: MetricRecord(dict(metrics)), **(arrays or {})})
    return Message(content, reply_to=message)
