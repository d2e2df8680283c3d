"""Grouped: several models at once, one inner strategy per group of nodes.

What a paper calls personalised, clustered or local training keeps several models. Each of them is
trained by a strategy of this package that asks only its group's nodes; a message's ``group_id`` says
which group it belongs to. A group whose nodes are lost keeps its model, and the others go on. Reduction:
one group of all nodes is the inner strategy, bit for bit.
"""

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, ConfigScalar, Message, MetricRecord
from flwr.serverapp import Grid

from .core.pseudo_gradient import PseudoGradientStrategy
from .core.replies import clamp_mean, find_void_means, select_group_replies
from .core.strategy import (
    BaseStrategy,
    ServerData,
    TooManyFailedRounds,
    merge_metric_records,
    require_covered,
    warn_of_stalled_models,
)
from .parts.privacy import refuse_groups
from .shared.checks import require, require_parts

logger = logging.getLogger("flwr.strategies")

Groups = dict[str, tuple[int, ...]]


@dataclass(kw_only=True, eq=False)
class StrategyWrapper(BaseStrategy):
    """Plays rounds with copies of ``inner``, to which it delegates all that the copies share."""

    inner: BaseStrategy

    def train_config(self) -> dict[str, ConfigScalar]:
        return self.inner.train_config()

    def known_partitions(self) -> Mapping[int, int]:
        return self.inner.known_partitions()

    def participation_counts(self) -> dict[str, dict[str, int]]:
        return self.inner.participation_counts()

    def freeze(self, names: Iterable[str]) -> None:
        self.inner.freeze(names)

    def measure_norms(self) -> None:
        self.inner.measure_norms()

    @property
    def has_stateful_nodes(self) -> bool:
        return self.inner.has_stateful_nodes

    @property
    def needs_server_data(self) -> bool:
        return self.inner.needs_server_data

    def set_server_data(self, server_data: ServerData) -> None:
        super().set_server_data(server_data)
        self.inner.set_server_data(server_data)

    def set_num_rounds(self, rounds: int) -> None:
        self.inner.set_num_rounds(rounds)

    def check(self, arrays: ArrayRecord) -> object:
        return self.inner.check(arrays)

    def summary(self) -> None:
        self.inner.summary()


@dataclass(kw_only=True, eq=False)
class Grouped(StrategyWrapper):
    """One copy of ``inner`` per group, each with a model of its own.

    The YAML file of a subclass has ``inner``, too, and names its own classes:

        defaults: [local, _self_]
        _target_: mylab.mine.Mine
        inner: {_target_: mylab.mine.OfOneGroup}

    What the groups share, :meth:`strategy_of` can give to each.

    Parameters
    ----------
    inner : the strategy of one group, copied for each
    groups : {name: partition ids}; None leaves the choice to :meth:`initial_groups`
    """

    inner: PseudoGradientStrategy
    groups: Groups | None = None

    _strategies: dict[str, PseudoGradientStrategy] = field(default_factory=dict, init=False, repr=False)
    _models: dict[str, ArrayRecord] = field(default_factory=dict, init=False, repr=False)
    _initial: ArrayRecord | None = field(default=None, init=False, repr=False)
    _ungrouped: set[int] = field(default_factory=set, init=False, repr=False)  # in no group, and logged

    def __post_init__(self) -> None:
        """Refuse what is no strategy or no groups, and a privacy that would not hold."""
        require_parts(self)
        refuse_groups(self.inner.privacy)
        if self.groups is not None:  # they name nodes, which are asked who they are
            _require_groups(self.groups)
            self.inner.registry.require_partition_ids()
            self._build(self.groups)

    def initial_groups(self, partition_ids: list[int]) -> Groups:
        """Return the groups to start with, given the nodes that are connected."""
        return self.groups or {"all": tuple(partition_ids)}

    def strategy_of(self, name: str, members: tuple[int, ...]) -> PseudoGradientStrategy:
        """Return a fresh strategy for one group."""
        return self.inner.for_group(name, members)

    def regroup(self, groups: Groups, models: dict[str, ArrayRecord]) -> None:
        """Start anew with these groups and the model of each."""
        try:
            self._strategies = self._build(groups)
        except ValueError as error:
            raise TooManyFailedRounds(f"no round of a group could take a step: {error}") from error
        self._models = models

    def _build(self, groups: Groups) -> dict[str, PseudoGradientStrategy]:
        """Return each group's strategy; raise ``ValueError`` for a part that needs more nodes."""
        built: dict[str, PseudoGradientStrategy] = {}
        for name, members in groups.items():
            try:
                built[name] = self.strategy_of(name, members)
                built[name].weighting.require_members(members)
            except ValueError as error:
                count = f"{len(members)} node{'s' * (len(members) != 1)}"
                raise ValueError(f"{self.name}: group {name} has {count}, and {error}") from error
        return built

    def check(self, arrays: ArrayRecord) -> object:
        """Refuse also parts that need more nodes than a group has, where ``inner.num_nodes`` is set."""
        if self.inner.num_nodes is not None:
            self._build(self.initial_groups(list(range(self.inner.num_nodes))))
        return super().check(arrays)

    def describe_beyond_mean(self) -> str:
        """Name the models, of which a wrapper of Flower's knows one."""
        return "the models"

    # ---- Flower's hooks: each of them once per group -------------------------------------------

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Send each group its own model; ``arrays`` is the model that all of them start from."""
        require_covered(self, self.describe_beyond_mean())
        if not self._strategies:
            self._initial = arrays
            groups = self.initial_groups(list(self.inner.find_nodes(grid)))
            self.regroup(groups, dict.fromkeys(groups, arrays))
        self._log_ungrouped_nodes(grid)
        return [
            message
            for name, strategy in self._strategies.items()
            for message in strategy.configure_train(server_round, self._models[name], config, grid)
        ]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord]:
        """Take every group's step; return the mean of the groups' models, for callers that want one.

        Raises
        ------
        TooManyFailedRounds : when every group has failed ``inner.max_failed_rounds`` times in a row
        """
        if not self._strategies:
            raise ValueError(
                f"{self.name}.aggregate_train needs its groups: call configure_train before it"
            )
        replies, rounds = list(replies), list[MetricRecord]()
        for name, strategy in self._strategies.items():
            model, metrics = strategy.aggregate_train(server_round, select_group_replies(name, replies))
            self._models[name] = model or self._models[name]
            rounds.append(metrics)
        self._stop_if_all_failed()
        warn_of_stalled_models(
            server_round, {name: strategy.stall_detector for name, strategy in self._strategies.items()}
        )
        return self._mean_model(), merge_metric_records(
            rounds, [s.num_trained_examples for s in self._strategies.values()]
        )

    def stop_awaiting(self, messages: Collection[Message]) -> None:
        for strategy in self._strategies.values():
            strategy.stop_awaiting(messages)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Let each node evaluate its own group's model."""
        return [
            message
            for name, strategy in self._strategies.items()
            for message in strategy.configure_evaluate(server_round, self._models[name], config, grid)
        ]

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Average over all nodes by their numbers of test examples, whatever their groups.

        Where half or more of the nodes have diverged, the mean is NaN.
        """
        replies, tested, records = list(replies), list[float](), list[MetricRecord]()
        for name, strategy in self._strategies.items():
            if metrics := strategy.aggregate_evaluate(server_round, select_group_replies(name, replies)):
                records.append(metrics)
                tested.append(strategy.evaluation.num_examples)
        evaluations = [strategy.evaluation for strategy in self._strategies.values()]
        diverged = [reply for one in evaluations for reply in one.diverged_replies.values()]
        void: dict[str, Any] = find_void_means(
            diverged, sum(len(one.sound_replies) for one in evaluations), self.inner.examples_key
        )
        mean: dict[str, Any] = dict(merge_metric_records(records, tested)) if records else {}
        for name, value in mean.items():
            numbers = [float(one[name]) for one in records if isinstance(one.get(name), int | float)]  # type: ignore[arg-type]
            if isinstance(value, float):  # and no list, whose elements are averaged
                mean[name] = clamp_mean(value, numbers)
        return MetricRecord({**mean, **void}) if mean or void else None

    def freeze(self, names: Iterable[str]) -> None:
        """Freeze them in every group's model."""
        for strategy in (self.inner, *self._strategies.values()):
            strategy.freeze(names)

    # ---- what is judged, saved and shown -------------------------------------------------------

    def models_to_evaluate(self, arrays: ArrayRecord) -> dict[str, ArrayRecord]:
        """Return each group's model to evaluate, by the group's name."""
        if not self._strategies:
            return self.inner.models_to_evaluate(arrays)
        by_group = {name: s.models_to_evaluate(self._models[name]) for name, s in self._strategies.items()}
        return {name: next(iter(models.values())) for name, models in by_group.items()}

    def model_weight(self, name: str) -> int:
        return len(self._strategies[name].members or ()) if name in self._strategies else 1

    def owner_of(self, name: str) -> int | None:
        strategy = self._strategies.get(name)
        nodes = (strategy.evaluators or strategy.members or ()) if strategy else ()
        return nodes[0] if len(nodes) == 1 else None

    def max_num_models(self, num_nodes: int) -> int:
        return num_nodes

    def per_site_metrics(self) -> dict[str, dict[str, float]]:
        return dict(pair for s in self._strategies.values() for pair in s.per_site_metrics().items())

    def update_norms(self) -> dict[str, float]:
        return dict(pair for s in self._strategies.values() for pair in s.update_norms().items())

    def state_dict(self) -> dict[str, Any]:
        """Return all that the next round depends on."""
        return {
            "initial": self._initial,
            "models": dict(self._models),
            "members": {name: s.members for name, s in self._strategies.items()},
            "strategies": {name: s.state_dict() for name, s in self._strategies.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where the strategy that gave ``state`` stood."""
        self._initial = state["initial"]
        self.regroup(state["members"], dict(state["models"]))
        for name, strategy in self._strategies.items():
            strategy.load_state_dict(state["strategies"][name])

    def _log_ungrouped_nodes(self, grid: Grid) -> None:
        """Log the nodes in no group, each once: those that connected after the groups were made."""
        known = self._ungrouped.union(*(strategy.members or () for strategy in self._strategies.values()))
        if left_out := sorted(self.inner.find_nodes(grid).keys() - known):
            logger.warning("partitions %s are in no group and do not train", left_out)
            self._ungrouped.update(left_out)

    def _stop_if_all_failed(self) -> None:
        strategies = self._strategies.values()
        if all(strategy.failures.fatal_reason for strategy in strategies):
            raise TooManyFailedRounds(f"for every model, {next(iter(strategies)).failures.fatal_reason}")
        count = min(strategy.failures.num_failed for strategy in strategies)
        if count >= self.inner.max_failed_rounds:
            raise TooManyFailedRounds(
                f"{count} rounds in a row failed for every model, the first by "
                f"{next(iter(strategies)).failures.last_failure}"
            )

    def _mean_model(self) -> ArrayRecord:
        models = list(self._models.values())
        layout = self.inner.check(models[0])
        parameters = torch.stack([layout.flatten_parameters(model) for model in models])
        buffers = torch.stack([layout.flatten_buffers(model) for model in models])
        return layout.record(parameters.mean(0), buffers.mean(0))


def _require_groups(groups: Any) -> None:
    """Raise ``ValueError`` with one line for anything but {name: partition ids}."""
    expected = "{name: partition ids}, e.g. {'a': (0, 1), 'b': (2,)}"
    require(isinstance(groups, dict) and len(groups) > 0, "groups", groups, expected)
    for name, ids in groups.items():
        listed = isinstance(name, str) and isinstance(ids, (tuple, list)) and len(ids) > 0
        whole = listed and all(isinstance(one, (int, np.integer)) and one >= 0 for one in ids)
        require(whole, f"groups[{name!r}]", ids, expected)


@dataclass(kw_only=True, eq=False)
class LocalOnly(Grouped):
    """Local training only: every node trains its own model, the papers' baseline."""

    is_always_local: ClassVar[bool] = True  # whether nodes train by themselves to the end

    def __post_init__(self) -> None:
        """Refuse parts that compare nodes: a single one has nothing to be compared with."""
        super().__post_init__()
        if self.groups is None:
            self._build(self.initial_groups([0]))
        if self.is_always_local:
            try:
                self.inner.mask.require_nodes(1)
            except ValueError as error:
                raise ValueError(f"{self.name} trains every node by itself: {error}") from error

    def initial_groups(self, partition_ids: list[int]) -> Groups:
        """Return one group per node."""
        return {f"node{k}": (k,) for k in partition_ids}
