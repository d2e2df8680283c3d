"""Judging: what the server evaluates after each round, one model or several.

Flower's ``start`` hands ``evaluate_fn`` the arrays that were aggregated last; a mean of iterates, or the
models of several groups, are something else.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence

from flwr.app import ArrayRecord, ConfigRecord, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from . import protocol


class Judging(Strategy):
    """A Flower strategy that says which models are to be evaluated."""

    @abstractmethod
    def models(self, arrays: ArrayRecord) -> dict[str, ArrayRecord]:
        """Return the models to evaluate, by name; ``arrays`` are the last that were aggregated."""

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Run all rounds as Flower does, with the mean of what ``evaluate_fn`` finds of each model.

        Started again, a strategy goes on from what it remembers (momentum, control variates, groups and
        their models): a run of its own takes a new one.
        """

        def judge(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
            assert evaluate_fn is not None
            found = [evaluate_fn(server_round, model) for model in self.models(arrays).values()]
            told = [metrics for metrics in found if metrics is not None]
            return merged(told) if len(told) > 1 else next(iter(told), None)

        return super().start(
            grid,
            initial_arrays,
            num_rounds,
            timeout,
            train_config,
            evaluate_config,
            judge if evaluate_fn else None,
        )


def merged(records: Sequence[MetricRecord]) -> MetricRecord:
    """Sum what counts nodes, average everything else over the records that have it."""
    result = MetricRecord()
    for key in dict.fromkeys(key for record in records for key in record):
        values = [float(record[key]) for record in records if key in record]  # type: ignore[arg-type]
        counted = key in (protocol.REPLIES, protocol.FAILED)
        result[key] = int(sum(values)) if counted else sum(values) / len(values)
    return result
