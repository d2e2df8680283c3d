"""What Flower's strategies call otherwise: whoever comes from them is told the name here."""

import inspect
from collections.abc import Iterable

INSTEAD = {
    "fraction_train": "nodes_per_round=K, how many nodes train in a round",
    "min_train_nodes": "min_replies, with fewer of which a round takes no step",
    "min_available_nodes": "num_nodes, how many nodes to wait for",
    "fraction_evaluate": "federated_evaluation=True or False",
    "min_evaluate_nodes": "federated_evaluation=True or False",
    "weighted_by_key": "weighting, e.g. ByExamples() or Uniform()",
    "server_learning_rate": "step_size=Constant(eta=...)",
    "eta": "step_size=Constant(eta=...)",
    "server_momentum": "server_optimizer=Momentum(beta=...)",
    "beta_1": "server_optimizer=Adam(beta1=...)",
    "beta_2": "server_optimizer=Adam(beta2=...)",
    "tau": "server_optimizer=Adam(epsilon=...)",
    "proximal_mu": "mu",
}


def refuse(kind: type, given: Iterable[str]) -> None:
    """Raise ``TypeError`` for the first of Flower's names that a strategy does not take, with ours."""
    taken = inspect.signature(kind.__init__).parameters  # type: ignore[misc]
    for name in given:
        if name in INSTEAD and name not in taken:
            raise TypeError(f"{kind.__name__} has no {name}, a name of Flower's: set {INSTEAD[name]}")
