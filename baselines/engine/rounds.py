"""All rounds of one run: train, aggregate, evaluate, write down."""

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean

from flwr.app import ConfigRecord, MetricRecord

from baselines.experiment.experiment import Experiment
from baselines.grids.suite_grid import SuiteGrid

from . import resuming
from .checkpoint import Checkpoint
from .evaluator import Evaluator
from .metrics import OWN_GROUP
from .progress import Progress
from .run_folder import RunFolder


def run_rounds(this: Experiment, grid: SuiteGrid, folder: RunFolder) -> None:
    """Run the experiment on ``grid``; every round is on disk before the next one ends.

    Raises
    ------
    UserError : when the run cannot be resumed, or its checkpoints could not be
    """
    told = this.settings
    saved = resuming.to_resume(this, folder.path, grid.gives_node_states)
    progress = Progress(told.rounds)
    rounds = Rounds(this, grid, folder, progress)
    with folder.running(saved, lambda: grid.lost), progress:
        if saved:
            rounds.go_on_from(saved)
        else:
            rounds.evaluate(0)
        for server_round in range(saved.server_round + 1 if saved else 1, told.rounds + 1):
            last = server_round == told.rounds
            rounds.train(server_round)
            if server_round % told.evaluate_every == 0 or last:
                rounds.test_on_nodes(server_round)
                rounds.evaluate(server_round)
            else:
                progress.show(server_round, {})
            if told.checkpoint_every and (server_round % told.checkpoint_every == 0 or last):
                rounds.checkpoint(server_round).save(folder.path)
        rounds.write_evaluated()


class Rounds:
    """Where a run stands, and the steps that take it on."""

    def __init__(self, this: Experiment, grid: SuiteGrid, folder: RunFolder, progress: Progress) -> None:
        self.this, self.grid, self.folder, self.progress = this, grid, folder, progress
        self.strategy = this.strategy()
        self.arrays = this.initial_arrays()
        self.train_config = this.train_config()
        self._evaluator = _evaluator_of(this, grid)
        self._pending: Pending | None = None
        if self.strategy.needs_validation:
            self.strategy.validate_with(self._evaluator.right_on)

    def train(self, server_round: int) -> None:
        """Take the round's step; the last one is evaluated meanwhile, where the grid can."""
        started = time.perf_counter()
        try:
            messages = self.strategy.configure_train(
                server_round, self.arrays, self.train_config, self.grid
            )
            replies = self.grid.send_and_receive(messages, timeout=self.this.settings.timeout)
            answered = time.perf_counter()
            arrays, metrics = self.strategy.aggregate_train(server_round, replies)
            ended = time.perf_counter()
        except Exception:
            with contextlib.suppress(Exception):
                self.write_evaluated()
            raise
        self.write_evaluated()  # the rounds' rows stand in order
        self.arrays = arrays if arrays is not None else self.arrays
        times = {"seconds": ended - started, "server_seconds": ended - answered}
        self.folder.write(server_round, "train", "global", _scalars(metrics) | times)

    def evaluate(self, server_round: int) -> None:
        """Begin to evaluate the models on the server's test set; where it costs no time, wait."""
        models = self.strategy.models(self.arrays)
        weights = [self.strategy.weight(name) for name in models]
        wait = self._evaluator.evaluated(list(models.values()))
        self._pending = Pending(server_round, list(models), weights, wait)
        if not self._evaluator.aside:
            self.write_evaluated()

    def write_evaluated(self) -> None:
        """Wait for the models that are evaluated, write down how well they do, show the mean over nodes."""
        if (pending := self._pending) is None:
            return
        self._pending = None
        results = pending.wait()
        for name, metrics in zip(pending.names, results, strict=True):
            self.folder.write(pending.server_round, "test", name, metrics)
        mean = results[0]
        if len(results) > 1:
            mean = {metric: fmean((r[metric] for r in results), pending.weights) for metric in mean}
            self.folder.write(pending.server_round, "test", OWN_GROUP, mean)
        self.progress.show(pending.server_round, mean)

    def checkpoint(self, server_round: int) -> Checkpoint:
        """Return all that the rounds after this one depend on."""
        self.write_evaluated()
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

    def test_on_nodes(self, server_round: int) -> None:
        """Evaluate on the nodes, where they keep test data."""
        if self.this.settings.node_test_fraction == 0:
            return
        requests = self.strategy.configure_evaluate(server_round, self.arrays, ConfigRecord(), self.grid)
        answers = self.grid.send_and_receive(requests, timeout=self.this.settings.timeout)
        on_nodes = self.strategy.aggregate_evaluate(server_round, answers)
        names = list(self.strategy.models(self.arrays))
        name = names[0] if len(names) == 1 else OWN_GROUP
        self.folder.write(server_round, "node-test", name, _scalars(on_nodes))


@dataclass(frozen=True)
class Pending:
    """Models that are being evaluated.

    Parameters
    ----------
    server_round : after which they are the strategy's
    names : what the strategy calls them
    weights : how many nodes each is for
    wait : returns their metrics
    """

    server_round: int
    names: list[str]
    weights: list[int]
    wait: Callable[[], list[dict[str, float]]]


def _evaluator_of(this: Experiment, grid: SuiteGrid) -> Evaluator:
    """Return who evaluates: the grid's workers, where it has any that do tasks."""
    if grid.dispatch is None:
        return Evaluator(this)
    from .ray_evaluator import RayEvaluator  # imports Ray

    return RayEvaluator(this, grid.dispatch)


def _scalars(record: MetricRecord | None) -> dict[str, float]:
    """Return a record's numbers under the names that metrics.csv uses."""
    return {
        key.replace("-", "_"): float(value)
        for key, value in (record or {}).items()
        if isinstance(value, int | float)
    }
