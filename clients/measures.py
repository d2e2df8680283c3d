"""Measure a node's training examples at a model, where a strategy asks before a round.

The server's half is :mod:`strategies.core.questions`. A node measures what it is asked for by name: ``MEASURES``,
or a metric of its task. The model is in evaluation mode meanwhile, and nothing of the node changes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch
from flwr.app import ConfigRecord, Context, Message
from torch import nn

from strategies.shared import client_state, protocol
from strategies.shared.seeding import Purpose, generator

from .evaluation import evaluate
from .examples import Examples
from .methods.oort import mean_squared_loss
from .methods.uga import full_loss
from .private import restore
from .round import Node, get_record, load_sent, make_reply, partition_id_of
from .tasks import Task

Measure = Callable[[nn.Module, Examples, Task, int | None], float]  # of a model, batch by batch
MEASURES: Mapping[str, Measure] = {
    protocol.START_LOSS: full_loss,
    protocol.SQUARED_LOSS: mean_squared_loss,
}


def measure_node(node: Node, examples: Examples, names: Sequence[str]) -> dict[str, float]:
    """Return the metrics of these names at the node's model.

    Raises
    ------
    ValueError : for a name of no measure and no metric of the task
    """
    own = {} if MEASURES.keys() >= set(names) else evaluate(node.model, examples, node.task)
    if unknown := [name for name in names if name not in MEASURES and name not in own]:
        expected = ", ".join(sorted([*MEASURES, *own]))
        raise ValueError(f"a question asks for {unknown[0]!r}: expected one of {expected}")
    settings = examples, node.task, node.training.batch_size
    return {
        name: MEASURES[name](node.model, *settings) if name in MEASURES else own[name] for name in names
    }


def answer_question(node: Node, message: Message, context: Context) -> Message:
    """Return the reply to a question; a node without examples measures nothing."""
    load_sent(node, message, context.state)
    state = client_state.load(context.state, message.metadata.group_id)
    restore(node.model, node.training.private, state)
    config = get_record(ConfigRecord, message.content, protocol.CONFIG)
    partition_id, names = partition_id_of(context, config), config[protocol.MEASURES]
    assert isinstance(names, list)
    metrics: dict[str, float] = {
        protocol.NUM_EXAMPLES: len(node.train),
        protocol.PARTITION_ID: partition_id,
    }
    if len(node.train):
        examples = draw_examples(node, config, partition_id)
        metrics |= measure_node(node, examples, [str(name) for name in names])
    return make_reply(message, metrics)


def draw_examples(node: Node, config: ConfigRecord, partition_id: int) -> Examples:
    """Return as many of the node's training examples as a question asks for, without replacement."""
    count, server_round = config.get(protocol.MEASURED_EXAMPLES), config[protocol.SERVER_ROUND]
    if not isinstance(count, int) or count >= len(node.train):
        return node.train
    place = {"server_round": int(server_round), "partition_id": partition_id}  # type: ignore[arg-type]
    drawn = generator(node.seed, Purpose.QUESTION, **place).choice(len(node.train), count, replace=False)
    rows = torch.from_numpy(drawn).sort().values
    return replace(node.train, index=node.train.index[rows])
