"""Weighing: the weights of a round, or why it has none. A user's own weighting may give anything."""

from torch import Tensor

from strategies.parts.aggregation import Aggregation
from strategies.parts.updates import Updates
from strategies.parts.weighting import State, Weighting

from .failures import Lacking, NoStep


def needed_metrics(weighting: Weighting, aggregation: Aggregation) -> list[str]:
    """Return the names of the metrics without which a reply cannot be used."""
    return [*([weighting.asks_for] if weighting.asks_for else []), *aggregation.needs]


def weigh(
    weighting: Weighting, aggregation: Aggregation, updates: Updates, state: State, min_replies: int
) -> tuple[Tensor, State]:
    """Return the weights alpha[t], [K] or [K, L], and the weighting's next state.

    Raises
    ------
    Lacking : where the round lacks replies, or what the weighting needs
    NoStep : where the weights cannot be used
    """
    if (kept := len(updates.partition_ids)) < min_replies:
        raise Lacking(f"{kept} sound replies, min_replies={min_replies}")
    if lack := weighting.lacks(updates) or aggregation.lacks(updates):
        raise Lacking(lack)
    weights, state = weighting(updates, state)
    if fault := _fault(weights, updates):
        raise NoStep(f"weighting={type(weighting).__name__} gave {fault}")
    return aggregation.weights(updates, weights), state


def _fault(weights: Tensor, updates: Updates) -> str | None:
    """Say what is wrong with weights; None where they can be used."""
    nodes, layers = len(updates.partition_ids), len(updates.layout.layers)
    if not isinstance(weights, Tensor):
        return f"a {type(weights).__name__}, expected a tensor"
    if tuple(weights.shape) not in ((nodes,), (nodes, layers)):
        return f"weights of shape {tuple(weights.shape)}, expected {(nodes,)} or {(nodes, layers)}"
    sound = weights.isfinite().view(nodes, -1).all(1)
    if not bool(sound.all()):
        row = int((~sound).nonzero()[0])
        return f"partition {updates.partition_ids[row]} a weight that is NaN or infinite"
    if (least := float(weights.sum(0).min())) <= 0:
        return f"weights that sum to {least:.3g}, expected 1"
    return None
