"""Weight Erosion: a personalised model for one requesting node, or for every node in turn.

Grimberg et al. 2020; Gengler, Beaussart, Yuan (report, Algorithm 1): the other nodes' pseudo-gradients
help the requester for as long as they point where its own does. The weights and their equations are in
:mod:`strategies.parts.weighting`; the strategy adds that the requester is asked in every round, and that a
node whose weight has reached 0 is not asked again. Reduction: ``distance_penalty=0`` is FedAvg with uniform
weights, where all nodes train in each round.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from statistics import fmean
from typing import ClassVar

from flwr.app import ArrayRecord, Message, MetricRecord

from .core.client_registry import sample_partitions
from .core.pseudo_gradient import PseudoGradientStrategy
from .grouped import Grouped
from .parts.weighting import EVERY_NODE, Erosion, Weighting, get_alphas


@dataclass(kw_only=True, eq=False)
class WeightErosion(PseudoGradientStrategy):
    """FedAvg for one node, with eroding weights; see :class:`~strategies.Erosion`."""

    named_part: ClassVar[str] = "weighting"
    weighting: Weighting = Erosion(requester=0)

    def choose(self, partition_ids: list[int], server_round: int) -> list[int]:
        """Return the requester, and others whose weight, in any layer, is above 0."""
        if not partition_ids:
            return []
        requester = self._requester
        alpha = get_alphas(self.server_state.weighting, max(partition_ids) + 1)
        others = [k for k in partition_ids if k != requester and alpha[k].max() > 0]
        count = self.count_in_round(len(partition_ids)) - 1
        here = (
            [requester] if requester in partition_ids else []
        )  # else the round fails, see Erosion.find_lack
        return sorted([*sample_partitions(others, count, self.seed, server_round), *here])

    @property
    def has_named_partitions(self) -> bool:
        """True: the requester is named."""
        return True

    @property
    def _requester(self) -> int:
        assert isinstance(self.weighting, Erosion)
        assert isinstance(self.weighting.requester, int)
        return self.weighting.requester


@dataclass(kw_only=True, eq=False)
class WeightErosionForAll(Grouped):
    """Every node is the requester of a model of its own: N models, each with its own weights.

    Parameters
    ----------
    inner : the strategy of one requester; its ``weighting.requester`` is replaced by each node in turn

    A round's ``mean-weight-<k>`` is node k's alpha, averaged over the requesters.
    """

    inner: PseudoGradientStrategy

    def __post_init__(self) -> None:
        """Refuse an inner strategy that has no requester."""
        super().__post_init__()
        if not isinstance(self.inner.weighting, Erosion):
            raise ValueError(
                f"strategy=weight_erosion_all needs inner=weight_erosion, not {type(self.inner).__name__} "
                f"with weighting={type(self.inner.weighting).__name__}"
            )
        if self.inner.weighting.requester == EVERY_NODE:
            self.inner = replace(self.inner, weighting=replace(self.inner.weighting, requester=0))

    def initial_groups(self, partition_ids: list[int]) -> dict[str, tuple[int, ...]]:
        """Return one group per requester, with every node in it."""
        return {f"node{k}": tuple(partition_ids) for k in partition_ids}

    def strategy_of(self, name: str, members: tuple[int, ...]) -> PseudoGradientStrategy:
        """Return ``inner`` for the requester that the group is named after."""
        strategy = super().strategy_of(name, members)
        weighting = strategy.weighting
        assert isinstance(weighting, Erosion)
        requester = int(name.removeprefix("node"))
        strategy.weighting = replace(weighting, requester=requester)
        strategy.evaluators = (requester,)  # the model is its own
        return strategy

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord]:
        """Take every model's step; name the weights' means over the requesters as means."""
        arrays, metrics = super().aggregate_train(server_round, replies)
        known = [strategy.server_state.weighting for strategy in self._strategies.values()]
        count = max((len(state["alpha"]) for state in known if state), default=0)
        for k in range(count):
            metrics.pop(f"weight-{k}", None)
            means = [float(get_alphas(state, count)[k].mean()) for state in known if state]
            metrics[f"mean-weight-{k}"] = fmean(means)
        return arrays, metrics
