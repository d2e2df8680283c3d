"""All rounds of one run: train, aggregate, evaluate, write down."""

import time
from statistics import fmean

from flwr.app import ConfigRecord, MetricRecord

from baselines.experiment.experiment import Experiment
from baselines.grids.suite_grid import SuiteGrid
from clients.app import load
from clients.evaluation import evaluate

from . import resuming
from .checkpoint import Checkpoint
from .metrics import OWN_GROUP
from .progress import Progress
from .run_folder import RunFolder


def run_rounds(this: Experiment, grid: SuiteGrid, folder: RunFolder) -> None:
    """Run the experiment on ``grid``; every round is on disk before the next one begins.

    Raises
    ------
    UserError : when the run cannot be resumed, or its checkpoints could not be
    """
    told = this.settings
    saved = resuming.to_resume(this, folder.path, grid.gives_node_states)
    rounds = Rounds(this, grid, folder)
    with folder.running(saved, lambda: grid.lost), Progress(told.rounds) as progress:
        if saved:
            rounds.go_on_from(saved)
        else:
            progress.show(0, rounds.evaluate(0))
        for server_round in range(saved.server_round + 1 if saved else 1, told.rounds + 1):
            last = server_round == told.rounds
            rounds.train(server_round)
            due = server_round % told.evaluate_every == 0 or last
            progress.show(server_round, rounds.test(server_round) if due else {})
            if told.checkpoint_every and (server_round % told.checkpoint_every == 0 or last):
                rounds.checkpoint(server_round).save(folder.path)


class Rounds:
    """Where a run stands, and the steps that take it on."""

    def __init__(self, this: Experiment, grid: SuiteGrid, folder: RunFolder) -> None:
        self.this, self.grid, self.folder = this, grid, folder
        self.strategy = this.strategy()
        self.arrays = this.initial_arrays()
        self.train_config = this.train_config()
        self.model = this.model()

    def train(self, server_round: int) -> None:
        """Take the round's step."""
        started = time.perf_counter()
        messages = self.strategy.configure_train(server_round, self.arrays, self.train_config, self.grid)
        replies = self.grid.send_and_receive(messages, timeout=self.this.settings.timeout)
        arrays, metrics = self.strategy.aggregate_train(server_round, replies)
        self.arrays = arrays if arrays is not None else self.arrays
        seconds = time.perf_counter() - started
        self.folder.write(server_round, "train", "global", {**_scalars(metrics), "seconds": seconds})

    def test(self, server_round: int) -> dict[str, float]:
        """Evaluate on the nodes, where they keep test data, and on the server; return the latter's mean."""
        if self.this.settings.node_test_fraction > 0:
            self._test_on_nodes(server_round)
        return self.evaluate(server_round)

    def evaluate(self, server_round: int) -> dict[str, float]:
        """Evaluate each judged model on the server's test set; return the mean over the nodes."""
        results = []
        judged = self.strategy.models(self.arrays)
        for name, record in judged.items():
            load(self.model, record)
            results.append(evaluate(self.model, self.this.test_examples, self.this.dataset.task))
            self.folder.write(server_round, "test", name, results[-1])
        if len(judged) == 1:
            return results[0]
        weights = [self.strategy.weight(name) for name in judged]
        mean = {metric: fmean((r[metric] for r in results), weights) for metric in results[0]}
        self.folder.write(server_round, "test", OWN_GROUP, mean)
        return mean

    def checkpoint(self, server_round: int) -> Checkpoint:
        """Return all that the rounds after this one depend on."""
        return Checkpoint(
            server_round=server_round,
            arrays=self.arrays,
            strategy=self.strategy.state_dict(),
            nodes=self.grid.node_states(),
            **self.folder.position(),
        )

    def go_on_from(self, saved: Checkpoint) -> None:
        """Stand where the checkpoint was taken."""
        self.arrays = saved.arrays
        self.strategy.load_state_dict(saved.strategy)
        if saved.nodes is not None:
            self.grid.load_node_states(saved.nodes)

    def _test_on_nodes(self, server_round: int) -> None:
        requests = self.strategy.configure_evaluate(server_round, self.arrays, ConfigRecord(), self.grid)
        answers = self.grid.send_and_receive(requests, timeout=self.this.settings.timeout)
        on_nodes = self.strategy.aggregate_evaluate(server_round, answers)
        names = list(self.strategy.models(self.arrays))
        name = names[0] if len(names) == 1 else OWN_GROUP
        self.folder.write(server_round, "node-test", name, _scalars(on_nodes))


def _scalars(record: MetricRecord | None) -> dict[str, float]:
    """Return a record's numbers under the names that metrics.csv uses."""
    return {
        key.replace("-", "_"): float(value)
        for key, value in (record or {}).items()
        if isinstance(value, int | float)
    }
