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

    def weight(self, name: str) -> int:
        """Return how many nodes a model is for, relative to the others: what it counts in their mean."""
        return 1

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
        """Run all rounds as Flower does; of several models ``evaluate_fn``'s mean is over their nodes.

        Started again, a strategy goes on from what it remembers (momentum, control variates, groups and
        their models): a run of its own takes a new one.
        """

        def judge(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
            assert evaluate_fn is not None
            found = {name: evaluate_fn(server_round, model) for name, model in self.models(arrays).items()}
            told = {name: metrics for name, metrics in found.items() if metrics is not None}
            if len(told) > 1:
                return merged(list(told.values()), [self.weight(name) for name in told])
            return next(iter(told.values()), None)

        return super().start(
            grid,
            initial_arrays,
            num_rounds,
            timeout,
            train_config,
            evaluate_config,
            judge if evaluate_fn else None,
        )


def merged(records: Sequence[MetricRecord], weights: Sequence[int]) -> MetricRecord:
    """Sum what counts nodes, average everything else, so weighted, over the records that have it."""
    result = MetricRecord()
    for key in dict.fromkeys(key for record in records for key in record):
        having = [(float(r[key]), w) for r, w in zip(records, weights, strict=True) if key in r]  # type: ignore[arg-type]
        if key in (protocol.REPLIES, protocol.FAILED):
            result[key] = int(sum(value for value, _ in having))
        else:
            total = sum(w for _, w in having)
            result[key] = sum(value * (w / total) for value, w in having)  # of one record: as it was
    return result
