"""All rounds of one run: train, aggregate, evaluate, write down."""

import time
from statistics import fmean

from flwr.app import ArrayRecord, ConfigRecord, MetricRecord
from flwr.serverapp import Grid

from clients.app import load
from clients.evaluation import evaluate
from strategies import Grouped, PseudoGradientStrategy

from .experiment import Experiment
from .progress import Progress
from .results import RunFolder


def run_rounds(this: Experiment, grid: Grid, folder: RunFolder) -> None:
    """Run the experiment on ``grid``; every round is on disk before the next one begins."""
    cfg = this.cfg
    strategy = this.strategy()
    arrays = this.initial_arrays()
    train_config = this.train_config()
    model = this.model()

    def judged(arrays: ArrayRecord) -> dict[str, ArrayRecord]:
        if isinstance(strategy, PseudoGradientStrategy | Grouped):
            return strategy.models(arrays)
        return {"global": arrays}

    def evaluate_models(server_round: int) -> dict[str, float]:
        results = []
        for name, record in judged(arrays).items():
            load(model, record)
            results.append(evaluate(model, this.test_examples, this.dataset.task))
            folder.write(server_round, "test", name, results[-1])
        return {metric: fmean(result[metric] for result in results) for metric in results[0]}

    with folder.running(), Progress(cfg.rounds) as progress:
        progress.show(0, evaluate_models(0))
        for server_round in range(1, cfg.rounds + 1):
            started = time.perf_counter()
            messages = strategy.configure_train(server_round, arrays, train_config, grid)
            replies = grid.send_and_receive(messages, timeout=cfg.timeout)
            new_arrays, metrics = strategy.aggregate_train(server_round, replies)
            arrays = new_arrays if new_arrays is not None else arrays
            seconds = time.perf_counter() - started
            folder.write(server_round, "train", "global", {**_scalars(metrics), "seconds": seconds})
            tested: dict[str, float] = {}
            if server_round % cfg.evaluate_every == 0 or server_round == cfg.rounds:
                if cfg.node_test_fraction > 0:
                    requests = strategy.configure_evaluate(server_round, arrays, ConfigRecord(), grid)
                    answers = grid.send_and_receive(requests, timeout=cfg.timeout)
                    on_nodes = strategy.aggregate_evaluate(server_round, answers)
                    names = list(judged(arrays))
                    name = names[0] if len(names) == 1 else "own group"
                    folder.write(server_round, "node-test", name, _scalars(on_nodes))
                tested = evaluate_models(server_round)
            progress.show(server_round, tested)


def _scalars(record: MetricRecord | None) -> dict[str, float]:
    """Return a record's numbers under the names that metrics.csv uses."""
    return {
        key.replace("-", "_"): float(value)
        for key, value in (record or {}).items()
        if isinstance(value, int | float)
    }
