"""Adapt a strategy of Flower, or a user's plain Flower strategy, to this suite.

It has one model to evaluate and no state to resume from. Failed rounds, without a step because too few
nodes replied, are counted as this suite's strategies count them.
"""

import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from clients.fast.guards import restore_random_state
from strategies import TooManyFailedRounds
from strategies.core.strategy import BaseStrategy, describe_uncovered, get_error_reason
from strategies.shared import protocol
from strategies.shared.seeding import Purpose, torch_seed

CLIPPED_AT_NODES = "DifferentialPrivacyClientSide"


class FlowerStrategyAdapter(BaseStrategy):
    """Another strategy, wrapped.

    Parameters
    ----------
    strategy : the wrapped strategy
    num_nodes : how many nodes the experiment has
    max_failed_rounds : how many rounds in a row without a step end the run
    unread : changed settings of the experiment that the strategy does not read
    seed : of Python's ``random`` and numpy's ``np.random`` while the strategy chooses nodes
    """

    is_resumable: ClassVar[bool] = False

    def __init__(
        self,
        strategy: Strategy,
        num_nodes: int,
        max_failed_rounds: int,
        unread: Sequence[str] = (),
        seed: int = 0,
    ) -> None:
        if getattr(strategy, "train_loss_key", None) == "train_loss":
            strategy.train_loss_key = protocol.LOSS  # type: ignore[attr-defined]  # this suite's name for it
        self.strategy = strategy
        self.num_nodes = num_nodes
        self.unread = unread
        self.seed = seed
        self.max_failed_rounds = max_failed_rounds
        self._failed_rounds = 0
        self._has_sent = True

    @property
    def name(self) -> str:
        """What the strategy is called."""
        return type(self.strategy).__name__

    def models_to_evaluate(self, arrays: ArrayRecord) -> dict[str, ArrayRecord]:
        return {"global": arrays}

    def check(self, arrays: ArrayRecord) -> None:
        """Raise ``ValueError`` for settings that would be ignored, or more nodes than there are."""
        for key in self.unread:
            raise ValueError(
                f"{key} does not reach {self.name}, which is not a strategy of this suite: "
                f"leave it out, or let the strategy's file name it, as ${{{key}}}"
            )
        if self.name.startswith(CLIPPED_AT_NODES):
            raise ValueError(
                f"{self.name} leaves the clipping to a mod that this suite's nodes do not have, and would "
                "protect nothing: choose strategy=fedavg privacy=local, or the server-side strategy"
            )
        self._require_covered()
        min_nodes = getattr(self.strategy, "min_available_nodes", 0)
        if min_nodes > self.num_nodes:
            raise ValueError(
                f"{self.name} waits for {min_nodes} nodes, and num_nodes={self.num_nodes}: set "
                "strategy.min_available_nodes, .min_train_nodes and .min_evaluate_nodes, or more nodes"
            )

    def _require_covered(self) -> None:
        """Refuse a privacy wrapper of Flower around a strategy of this suite that its noise does not cover."""
        inner = getattr(self.strategy, "strategy", None)
        beyond = inner.describe_beyond_mean() if isinstance(inner, BaseStrategy) else ""
        if fault := describe_uncovered(self.strategy, inner, beyond):
            raise ValueError(
                f"{fault}: let it wrap strategies.FedAvg, or choose strategy=fedavg privacy=central"
            )

    def state_dict(self) -> dict[str, Any]:
        raise NotImplementedError(f"{self.name} has no state_dict")

    def load_state_dict(self, state: dict[str, Any]) -> None:
        raise NotImplementedError(f"{self.name} has no load_state_dict")

    def set_num_rounds(self, rounds: int) -> None:
        self.max_failed_rounds = min(self.max_failed_rounds, rounds)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        with _seeded_draws(self.seed, server_round, 0):
            messages = list(self.strategy.configure_train(server_round, arrays, config, grid))
        self._has_sent = bool(messages)
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Pass the replies on.

        Raises
        ------
        TooManyFailedRounds : when there was no step in ``max_failed_rounds`` rounds in a row
        """
        replies = list(replies)
        arrays, metrics = self.strategy.aggregate_train(server_round, replies)
        moved_on = arrays is not None or not self._has_sent  # asking no node to train is no failure
        self._failed_rounds = 0 if moved_on else self._failed_rounds + 1
        if self._failed_rounds >= self.max_failed_rounds:
            raise TooManyFailedRounds(
                f"{self._failed_rounds} rounds in a row failed: {self.name} produced no model from "
                f"{len(replies)} replies (errors in the last: {_errors(replies)}); look at the nodes"
            )
        return arrays, _without_ids(metrics)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        with _seeded_draws(self.seed, server_round, 1):
            return list(self.strategy.configure_evaluate(server_round, arrays, config, grid))

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        return _without_ids(self.strategy.aggregate_evaluate(server_round, replies))

    def summary(self) -> None:
        self.strategy.summary()


def _without_ids(metrics: MetricRecord | None) -> MetricRecord | None:
    """Return the metrics without the mean of the nodes' partition ids, which is meaningless."""
    if metrics is not None:
        metrics.pop(protocol.PARTITION_ID, None)
    return metrics


@contextmanager
def _seeded_draws(seed: int, server_round: int, step: int) -> Iterator[None]:
    """Seed the global random generators within this context, and restore them afterwards.

    Flower's strategies sample nodes with ``random``.
    """
    place = {"server_round": server_round, "partition_id": step}
    drawn = torch_seed(seed, Purpose.FOREIGN, **place)
    with restore_random_state():
        random.seed(drawn)
        np.random.seed(drawn % 2**32)  # noqa: NPY002 - Flower uses it
        yield


def _errors(replies: Iterable[Message]) -> str:
    """Return the failed nodes' reasons, each once and three at most."""
    reasons = (get_error_reason(reply) for reply in replies if reply.has_error())
    return "; ".join([*dict.fromkeys(reasons)][:3]) or "none"
