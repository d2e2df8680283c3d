"""The one ClientApp: it answers for its partition, trains, and evaluates.

A node knows nothing of the strategy it serves: what a round asks of it stands in the message.
"""

import time
from collections import ChainMap
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import Tensor, nn

from strategies import protocol
from strategies.arrays import pack, view
from strategies.seeding import Purpose, torch_seed

from .control_variate import ControlVariate, gradient_weight
from .corrections import Correction, GradientVariance, Proximal
from .evaluation import evaluate
from .examples import Examples
from .gradient import full_gradient
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
        self.corrections = corrections(node, message.content, context.state, self.partition_id)
        self.started = time.perf_counter()

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


def corrections(node: Node, content: RecordDict, state: RecordDict, partition_id: int) -> list[Correction]:
    """Return the corrections that a round's message asks for; call it after :func:`load`.

    ``state`` is the node's own, in which SCAFFOLD's c_k lives.
    """
    config = record_of(ConfigRecord, content, protocol.CONFIG)
    named = {name: p for name, p in node.model.named_parameters() if p.requires_grad}
    asked: list[Correction] = []
    if config.get(protocol.GRADIENT_VARIANCE):
        asked.append(GradientVariance())
    if mu := config.get(protocol.PROXIMAL_MU):
        asked.append(Proximal(list(named.values()), float(mu)))  # type: ignore[arg-type]
    if protocol.CONTROL in content:
        renewal: list[Tensor] | float
        if config.get(protocol.CONTROL_OPTION) == 1:
            renewal = full_gradient(node.model, node.train, node.task, node.training.batch_size)
        else:
            renewal = gradient_weight(node.training, node.training.steps(len(node.train)))
        sent = record_of(ArrayRecord, content, protocol.CONTROL)
        rounds = int(config[protocol.SERVER_ROUND]), _counted(config, partition_id)  # type: ignore[arg-type]
        asked.append(ControlVariate(named, sent, state, rounds, renewal))
    return asked


def _counted(config: ConfigRecord, partition_id: int) -> int | None:
    """Return the round of the last c_k of this node that the server has counted; None for its last."""
    lost: list[int] = config.get(protocol.CONTROL_LOST, [])  # type: ignore[assignment]
    if partition_id not in lost:
        return None
    return config[protocol.CONTROL_COUNTED][lost.index(partition_id)]  # type: ignore[index,return-value]


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
