"""A federation whose nodes are plain functions, for tests of strategies."""

from collections.abc import Callable, Iterable

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import Strategy

from baselines.grids.inline import InlineGrid
from strategies.shared import protocol
from strategies.shared.arrays import view_values

Model = dict[str, np.ndarray]
Node = Callable[[int, RecordDict], RecordDict]  # (partition id, what the node was sent) -> its answer


class Federation(InlineGrid):
    """A grid that holds the partitions ``partition_of`` ({node id: partition id}).

    ``online`` are the connected nodes, in the order in which the grid lists them; ``requests`` the
    (message type, partition id) of every message so far.
    """

    def __init__(self, node: Node, partition_of: dict[int, int] | int, *, query: bool = True) -> None:
        if isinstance(partition_of, int):
            partition_of = {100 + k: k for k in range(partition_of)}
        super().__init__(_app(node, query), len(partition_of))
        self.partition_of = partition_of
        self.online = list(partition_of)
        self.requests: list[tuple[str, int]] = []

    def get_node_ids(self) -> list[int]:
        return list(self.online)

    def _answer(self, message: Message) -> Message:
        partition_id = self.partition_of[message.metadata.dst_node_id]
        self.requests.append((message.metadata.message_type, partition_id))
        return super()._answer(message)

    def context(self, node_id: int) -> Context:
        config: dict[str, bool | bytes | float | int | str] = {"partition-id": self.partition_of[node_id]}
        return Context(1, node_id, config, RecordDict(), {})

    def trained(self) -> list[int]:
        """Return the partitions asked to train since the last call."""
        partitions = [partition_id for kind, partition_id in self.requests if kind == "train"]
        self.requests.clear()
        return partitions


def _app(node: Node, query: bool) -> ClientApp:
    app = ClientApp()

    def partition_id(context: Context) -> int:
        return int(context.node_config["partition-id"])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        return Message(node(partition_id(context), message.content), reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        return Message(node(partition_id(context), message.content), reply_to=message)

    if query:

        @app.query()
        def answer(message: Message, context: Context) -> Message:
            measured = MetricRecord({"partition-id": partition_id(context)})
            return Message(RecordDict({"metrics": measured}), reply_to=message)

        @app.query("measure")
        def measure(message: Message, context: Context) -> Message:
            return Message(node(partition_id(context), message.content), reply_to=message)

    return app


def record(model: Model) -> ArrayRecord:
    return ArrayRecord({name: Array(np.asarray(values)) for name, values in model.items()})


def model_in(arrays: ArrayRecord) -> Model:
    return {name: view_values(array) for name, array in arrays.items()}


def sent_model(content: RecordDict) -> Model:
    return model_in(content.array_records[protocol.ARRAYS])


def chosen_model(partition_id: int, content: RecordDict) -> Model:
    """Return the model that a partition chooses of those in a message: each has one that is its own."""
    count = int(content.config_records[protocol.CONFIG].get(protocol.NUM_MODELS, 1))  # type: ignore[arg-type]
    return model_in(content.array_records[protocol.model_key(partition_id % count)])


def round_of(content: RecordDict) -> int:
    return int(content.config_records[protocol.CONFIG][protocol.SERVER_ROUND])  # type: ignore[arg-type]


def answer(model: Model, num_examples: float = 1, **metrics: float) -> RecordDict:
    """Return the answer of a node that does what it is asked for, as those of this suite do."""
    measured = MetricRecord({protocol.NUM_EXAMPLES: num_examples, **metrics})
    done = ConfigRecord({protocol.KEPT: True, protocol.PRIVACY: protocol.LOCAL})
    return RecordDict({protocol.ARRAYS: record(model), protocol.METRICS: measured, protocol.CONFIG: done})


def play(
    strategy: Strategy,
    grid: InlineGrid,
    arrays: ArrayRecord,
    rounds: Iterable[int] = (1,),
    order: Callable[[list[Message]], list[Message]] = list,
) -> list[tuple[ArrayRecord, MetricRecord]]:
    """Play training rounds; return the model and the metrics after each of them."""
    history = []
    for server_round in rounds:
        messages = strategy.configure_train(server_round, arrays, ConfigRecord(), grid)
        replies = order(grid.send_and_receive(messages))
        new, metrics = strategy.aggregate_train(server_round, replies)
        arrays = arrays if new is None else new
        assert metrics is not None
        history.append((arrays, metrics))
    return history


def assert_same(first: ArrayRecord, second: ArrayRecord) -> None:
    """Two models are equal to the bit, in names, order, shapes, dtypes and values."""
    assert list(first) == list(second)
    for name in first:
        assert (first[name].dtype, first[name].shape) == (second[name].dtype, second[name].shape), name
        assert first[name].data == second[name].data, f"{name} differs"
