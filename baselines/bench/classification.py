"""Local training of a classifier, inline, beside a plain loop over the same clients on the same tensors."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import torch
from flwr.app import ConfigRecord, Context, Message, MessageType, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from baselines.experiment import experiment
from baselines.grids.inline import InlineGrid
from clients.round import load
from strategies import PseudoGradientStrategy, Updates
from strategies.core.stacking import Workspace
from strategies.shared import protocol
from strategies.shared.arrays import move_record, to_array_record

from .peers import pfl_research, present
from .plain import Loop
from .report import Row, Workload, compared
from .timing import Contenders, alternate, run_experiment, with_rounds

MNIST = "dataset=mnist dataset.load.images.download=false partitioner=iid"


@dataclass(frozen=True)
class Classification(Workload):
    """Seconds of a round, inline.

    Parameters
    ----------
    setting : the overrides
    ways : {subject: (further overrides, goal beside the plain loop)}
    rounds : of a measurement; the first is not counted
    """

    setting: str
    ways: Mapping[str, tuple[str, float | None]]
    rounds: int = 3

    def measure(self, repeats: int, peers: bool) -> list[Row]:
        """Measure each way beside the plain loop and pfl-research."""
        others = present(self.name, [pfl_research(self.setting, rounds=self.rounds)], peers)
        setting, loop = f"{self.setting} device=cpu", "plain loop, cpu"
        goals = {f"{way}, cpu": goal for way, (_, goal) in self.ways.items()}
        runs_ = [with_rounds(f"{setting} {more}", self.rounds) for more, _ in self.ways.values()]
        ours = {subject: partial(_seconds, each) for subject, each in zip(goals, runs_, strict=True)}
        limit = Loop(experiment.load(setting), self.rounds)
        contenders: Contenders = {**ours, loop: limit, **others}
        samples = alternate(contenders, repeats)
        beside = {way: {loop: goal, **dict.fromkeys(others)} for way, goal in goals.items()}
        return compared(self.name, "round", "s", samples, beside)


def _seconds(overrides: str) -> float:
    return run_experiment(overrides).round


# A round of FedAvg up to its replies, for measuring what the server makes of them.
#
# Arrays stay where they are, on the device of the overrides, as in a run in one process.


def prepared(model: str, nodes: int, part: str) -> PseudoGradientStrategy:
    """Return FedAvg with another part, ready for a step from the initial model."""
    this = experiment.load(f"{model} num_nodes={nodes} {part}")
    strategy = this.strategy()
    assert isinstance(strategy, PseudoGradientStrategy)
    strategy._start_from(move_record(this.initial_arrays(), this.device))
    return strategy


def played(model: str, nodes: int) -> tuple[PseudoGradientStrategy, list[Message]]:
    """Return FedAvg, which has asked ``nodes`` nodes to train, and their replies."""
    this = experiment.load(f"{model} num_nodes={nodes}")
    strategy = this.strategy()
    assert isinstance(strategy, PseudoGradientStrategy)
    grid = InlineGrid(_moved(model), nodes)
    arrays = move_record(this.initial_arrays(), this.device)
    messages = strategy.configure_train(1, arrays, ConfigRecord(), grid)
    return strategy, list(grid.send_and_receive(messages))


def collected(strategy: PseudoGradientStrategy, replies: list[Message]) -> Updates:
    """Return the replies checked and stacked, as ``aggregate_train`` does."""
    assert strategy._layout is not None
    strategy._workspace = Workspace()
    answered = strategy._answers(MessageType.TRAIN, replies)
    return strategy._collect(1, answered, strategy._layout).updates


def _moved(model: str) -> ClientApp:
    """Return a ClientApp that moves each parameter at random instead of training."""
    app = ClientApp()

    @app.query()
    def query(message: Message, context: Context) -> Message:
        told = MetricRecord({protocol.PARTITION_ID: int(context.node_config[protocol.PARTITION_ID])})
        return Message(RecordDict({protocol.METRICS: told}), reply_to=message)

    @app.train()
    @torch.no_grad()
    def train(message: Message, context: Context) -> Message:
        partition_id = int(context.node_config[protocol.PARTITION_ID])
        network = experiment.load(model).node_model
        load(network, message.content.array_records[protocol.ARRAYS])
        draws = torch.Generator().manual_seed(partition_id)
        for p in network.parameters():
            p.add_(torch.randn(p.shape, generator=draws).to(p.device), alpha=1e-3)
        told = {protocol.NUM_EXAMPLES: 100 + partition_id, protocol.GRADIENT_VARIANCE: 1.0 + partition_id}
        arrays = to_array_record({name: tensor.clone() for name, tensor in network.state_dict().items()})
        content = RecordDict({protocol.ARRAYS: arrays, protocol.METRICS: MetricRecord(dict(told))})
        return Message(content, reply_to=message)

    return app
