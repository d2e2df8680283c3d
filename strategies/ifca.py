"""IFCA and HypCluster: clusters of nodes, each with a model, and each node chooses its own.

Ghosh, Chung, Yin, Ramchandran: *An Efficient Framework for Clustered Federated Learning*, NeurIPS 2020,
Algorithm 1 with model averaging (option II). Every node of a round is sent all M models w_j:

    node:    j_k = argmin_j F_k(w_j[t])               F_k: the loss on its own training examples
             w_k = LocalUpdate(w_{j_k}[t])
    server:  w_j[t+1] = sum_{k: j_k = j} w_k / |{k: j_k = j}|       weighting = Uniform

A model that no node of the round chose stays as it is. The mean is the update rule's, of the nodes of a
cluster alone, so that each part (a server optimizer, a mask, ...) acts on each cluster by itself, with a state
for each. Nodes are evaluated with the model that they choose at that time. On the server each model is
evaluated, weighted by the nodes that chose it when they trained last.

:class:`HypCluster` (Mansour, Mohri, Ro, Suresh: *Three Approaches for Personalization with Applications to
Federated Learning*, 2020, arXiv 2002.10619, user clustering) differs in the mean alone: it weights nodes by
examples, as FedAvg does.

Deviations: both papers begin with M different models, drawn at random or chosen. Here all begin with the
server's one, and a node that finds several equally good draws one, by seed, round and partition: so
pretrained models, and those that begin with zeros, become different, too. Both papers' code (IFCA's authors',
fedjax) draws each model, and takes the first of equal ones; fedjax can also begin with the models of nodes
that are far apart. A node has one state (an optimiser's, what a compression left out) for all models. IFCA's
option I, gradient averaging, and layers that all clusters share are left out. Reduction: one model is FedAvg
with uniform weights (HypCluster: FedAvg), bit for bit.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import torch
from flwr.app import ArrayRecord, ConfigScalar, Message, MetricRecord
from torch import Tensor

from .core.pseudo_gradient import PseudoGradientStrategy, ServerState
from .core.replies import metrics_of
from .core.strategy import merge_metric_records
from .parts.privacy import refuse_groups
from .parts.updates import NoStep, Updates
from .parts.weighting import Agnostic, ByExamples, Erosion, Uniform, Weighting
from .shared import protocol
from .shared.checks import require, require_count


@dataclass(kw_only=True, eq=False)
class IFCA(PseudoGradientStrategy):
    """Several models, each the mean of the nodes that chose it; needs this project's ClientApp.

    Parameters
    ----------
    num_models : M, how many; 1 is FedAvg with uniform weights

    ``nodes-cluster<j>`` of a round's metrics counts the nodes that trained model j. The arrays that a round
    returns are those of the first model; :meth:`models_to_evaluate` has all.
    """

    required_metrics: ClassVar[tuple[str, ...]] = (protocol.CHOSEN_MODEL,)
    weighting: Weighting = Uniform()
    num_models: int = 2

    _models: list[ArrayRecord] = field(default_factory=list, init=False, repr=False)  # as sent
    _states: list[ServerState] = field(default_factory=list, init=False, repr=False)  # of each
    _chosen: dict[int, int] = field(default_factory=dict, init=False, repr=False)  # last, by partition

    def __post_init__(self) -> None:
        """Refuse what needs a single model."""
        super().__post_init__()
        require_count("strategy.num_models", self.num_models)
        require(self.average_last == 1, "strategy.average_last", self.average_last, f"1 with {self.name}")
        refuse_groups(self.privacy)
        if isinstance(self.weighting, Agnostic | Erosion):
            raise ValueError(
                f"weighting={type(self.weighting).__name__} remembers each node's weight in one model, and "
                f"{self.name} has several: choose weighting=uniform or examples"
            )

    def for_group(self, name: str, members: tuple[int, ...]) -> Self:
        raise ValueError(
            f"strategy.inner={self.name} has several models, but a group has one: choose another inner strategy"
        )

    def train_config(self) -> dict[str, ConfigScalar]:
        return {**super().train_config(), protocol.NUM_MODELS: self.num_models}

    def models_to_train(self, arrays: ArrayRecord) -> Sequence[ArrayRecord]:
        return [arrays, *self._models[1:]]

    def start_of(self, reply: Message) -> Tensor:
        """Return the parameters of the model that the reply names."""
        number = metrics_of(reply)[protocol.CHOSEN_MODEL]
        if type(number) is not int or number >= self.num_models:
            raise ValueError(f"sent chosen-model={number}, expected 0 to {self.num_models - 1}")
        return self._states[number].parameters

    def take_step(self, server_round: int, updates: Updates) -> tuple[dict[str, float], Tensor]:
        """Apply the update rule to each cluster; raise ``NoStep`` where none of them can take a step."""
        chosen = updates.metrics.pop(protocol.CHOSEN_MODEL).int()  # no mean of it means anything
        self._chosen |= dict(zip(updates.partition_ids, chosen.tolist(), strict=True))
        weights: Tensor | None = None
        by_cluster, lack = dict[int, dict[str, float]](), NoStep("no node has chosen a model")
        for number, state in enumerate(self._states):
            rows = (chosen == number).nonzero().flatten()
            if not len(rows):
                continue
            others = {k for k, j in zip(updates.partition_ids, chosen.tolist(), strict=True) if j != number}
            of_cluster = replace(updates.without(others) if others else updates, start=state.parameters)
            try:
                stepped, result = self._rule.step(server_round, state, of_cluster, self._workspace)
            except NoStep as reason:
                lack = reason
                continue
            self._states[number] = stepped
            assert self.layout is not None
            self._models[number] = self.layout.record(stepped.parameters, stepped.buffers)
            if weights is None:
                weights = result.weights.new_zeros(len(chosen), *result.weights.shape[1:])
            weights[rows.to(weights.device)] = result.weights
            by_cluster[number] = result.metrics
            if not result.is_masked:
                self._part_check.report(self, {"mask"})
        if weights is None:
            raise lack
        self.server_state = self._states[0]
        nodes = torch.bincount(chosen, minlength=self.num_models).tolist()
        return self._mean_step(by_cluster, nodes), weights

    def _mean_step(self, by_cluster: dict[int, dict[str, float]], nodes: list[int]) -> dict[str, float]:
        """Return the clusters' mean metrics, weighted by their nodes, and how many nodes each has."""
        if self.num_models == 1:
            return by_cluster[0]
        records = [MetricRecord(dict(metrics)) for metrics in by_cluster.values()]
        mean: dict[str, Any] = dict(merge_metric_records(records, [nodes[number] for number in by_cluster]))
        return mean | {f"nodes-cluster{number}": count for number, count in enumerate(nodes)}

    def _start_from(self, arrays: ArrayRecord) -> None:
        """Take ``arrays`` as the first model; in the first round as each of them."""
        super()._start_from(arrays)
        assert self.layout is not None
        self._models = [arrays, *(self._models[1:] or [arrays] * (self.num_models - 1))]
        states = self._states or [ServerState(self.accountant)] * self.num_models
        others = zip(states[1:], self._models[1:], strict=True)
        self._states = [
            self.server_state,
            *(state.with_model(model, self.layout) for state, model in others),
        ]

    def models_to_evaluate(self, arrays: ArrayRecord) -> dict[str, ArrayRecord]:
        """Return each cluster's model, ``cluster0``, ...; before the first round, and of one, ``global``."""
        if not self._models or self.num_models == 1:
            return super().models_to_evaluate(arrays)
        return {f"cluster{number}": model for number, model in enumerate(self.models_to_train(arrays))}

    def model_weight(self, name: str) -> int:
        """Return how many nodes chose it when they trained last; 1 where none has yet."""
        chosen = [f"cluster{number}" for number in self._chosen.values()]
        return chosen.count(name) if chosen and self.num_models > 1 else 1

    def max_num_models(self, num_nodes: int) -> int:
        return self.num_models

    def state_dict(self) -> dict[str, Any]:
        others = [state.state_dict() for state in self._states[1:]]
        return super().state_dict() | {
            "models": self._models[1:],
            "states": others,
            "chosen": dict(self._chosen),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        empty = ServerState(self.accountant)
        self._models = [ArrayRecord(), *state["models"]] if state["models"] else []
        self._states = [self.server_state, *(empty.with_loaded_state(other) for other in state["states"])]
        self._chosen = dict(state["chosen"])


@dataclass(kw_only=True, eq=False)
class HypCluster(IFCA):
    """IFCA whose nodes count by their numbers of examples; one model is FedAvg."""

    weighting: Weighting = ByExamples()
