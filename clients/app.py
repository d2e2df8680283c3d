"""The one ClientApp: it answers for its partition, trains, and evaluates.

A node knows nothing of the strategy it serves: what a round asks of it stands in the message.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import nn

from strategies import protocol
from strategies.arrays import view
from strategies.seeding import Purpose, torch_seed

from .corrections import Correction, Proximal
from .evaluation import evaluate
from .examples import Examples
from .tasks import Task
from .training import LocalTraining


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
        node = node_of(message, context)
        config = message.content.config_records[protocol.CONFIG]
        load(node.model, message.content.array_records[protocol.ARRAYS])
        server_round = int(config[protocol.SERVER_ROUND])  # type: ignore[arg-type]
        partition_id = _partition_id(context)
        started = time.perf_counter()
        metrics = node.training(
            node.model,
            node.train,
            node.task,
            server_round=server_round,
            seed=torch_seed(
                node.seed,
                Purpose.LOCAL_TRAINING,
                server_round=server_round,
                partition_id=partition_id,
            ),
            corrections=corrections(node.model, config.get(protocol.PROXIMAL_MU, 0.0)),  # type: ignore[arg-type]
        )
        metrics[protocol.CLIENT_SECONDS] = time.perf_counter() - started
        metrics[protocol.NUM_EXAMPLES] = len(node.train)
        metrics[protocol.PARTITION_ID] = partition_id
        return _reply(message, metrics, ArrayRecord(node.model.state_dict()))

    @app.evaluate()
    def evaluate_(message: Message, context: Context) -> Message:
        node = node_of(message, context)
        load(node.model, message.content.array_records[protocol.ARRAYS])
        metrics: dict[str, float] = {protocol.NUM_EXAMPLES: len(node.test)}
        if len(node.test):
            metrics |= evaluate(node.model, node.test, node.task)
        return _reply(message, metrics)

    return app


def corrections(model: nn.Module, proximal_mu: float) -> Sequence[Correction]:
    """Return the corrections that a round's message asks for; call it after :func:`load`."""
    if proximal_mu == 0:
        return ()
    return (Proximal.around([p for p in model.parameters() if p.requires_grad], proximal_mu),)


@torch.no_grad()
def load(model: nn.Module, arrays: ArrayRecord) -> None:
    """Copy ``arrays`` into the model's parameters and buffers, by name."""
    state = model.state_dict()
    if state.keys() != arrays.keys():
        unknown = sorted(state.keys() ^ arrays.keys())
        raise ValueError(f"the message's model is not this node's: they differ in {unknown[:3]}")
    for name, tensor in state.items():
        tensor.copy_(torch.from_numpy(view(arrays[name]).copy()))


def _partition_id(context: Context) -> int:
    return int(context.node_config[protocol.PARTITION_ID])


def _reply(message: Message, metrics: dict[str, float], arrays: ArrayRecord | None = None) -> Message:
    content = RecordDict({protocol.METRICS: MetricRecord(dict(metrics))})
    if arrays is not None:
        content[protocol.ARRAYS] = arrays
    return Message(content, reply_to=message)
