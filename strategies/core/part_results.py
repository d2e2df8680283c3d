"""What the parts give for a round, checked: a user's own may give anything."""

import math

from torch import Tensor

from strategies.parts.aggregation import Aggregation
from strategies.parts.server_optimizer import ServerOptimizer
from strategies.parts.step_size import StepSize
from strategies.parts.updates import Updates
from strategies.parts.weighting import State, Weighting

from .strategy import Lacking, NoStep


def needed_metrics(weighting: Weighting, aggregation: Aggregation) -> list[str]:
    """Return the names of the metrics without which a reply cannot be used."""
    return [*([weighting.required_metric] if weighting.required_metric else []), *aggregation.needs]


def compute_weights(
    weighting: Weighting, aggregation: Aggregation, updates: Updates, state: State
) -> tuple[Tensor, State]:
    """Return the weights alpha[t], [K] or [K, L], and the weighting's next state.

    Raises
    ------
    Lacking : where the round lacks what the weighting or the aggregation needs
    NoStep : where the weights cannot be used
    """
    if lack := weighting.lacks(updates) or aggregation.lacks(updates):
        raise Lacking(lack)
    weights, state = _pair("weighting", weighting, weighting(updates, state))
    if fault := _fault(weights, updates):
        raise NoStep(f"weighting={type(weighting).__name__} gave {fault}")
    return aggregation.weights(updates, weights), state


def compute_step_size(
    step_size: StepSize, server_round: int, updates: Updates, weights: Tensor, mean: Tensor
) -> float:
    """Return eta[t]; raise ``NoStep`` where what the step size gave is no finite number."""
    given = step_size(server_round, updates, weights, mean)
    said = f"step_size={type(step_size).__name__} gave"
    try:
        eta = float(given)
    except (TypeError, ValueError, RuntimeError) as error:  # the last: a tensor of several
        raise NoStep(f"{said} {_named(given)}, expected a number") from error
    if not math.isfinite(eta):
        raise NoStep(f"{said} {eta}")
    return eta


def apply_optimizer(optimizer: ServerOptimizer, mean: Tensor, state: State) -> tuple[Tensor, State]:
    """Return the direction [P] and the optimizer's next state; raise ``NoStep`` where they are none."""
    shape = mean.shape
    direction, state = _pair("server_optimizer", optimizer, optimizer(mean, state))
    if not isinstance(direction, Tensor) or direction.shape != shape:
        said = f"server_optimizer={type(optimizer).__name__} gave {_named(direction)}"
        raise NoStep(f"{said}, expected a tensor of shape {tuple(shape)}")
    return direction, state


def _pair(name: str, part: object, given: tuple[Tensor, State]) -> tuple[Tensor, State]:
    if not (isinstance(given, tuple | list) and len(given) == 2):
        raise NoStep(
            f"{name}={type(part).__name__} gave {_named(given)}, expected a pair: a tensor, a state"
        )
    return given


def _named(given: object) -> str:
    if isinstance(given, Tensor):
        return f"a tensor of shape {tuple(given.shape)}"
    return "None" if given is None else f"a {type(given).__name__}"


def _fault(weights: Tensor, updates: Updates) -> str | None:
    """Say what is wrong with weights; None where they can be used."""
    nodes, layers = len(updates.partition_ids), len(updates.layout.layers)
    if not isinstance(weights, Tensor):
        return f"{_named(weights)}, expected a tensor"
    if tuple(weights.shape) not in ((nodes,), (nodes, layers)):
        return f"weights of shape {tuple(weights.shape)}, expected {(nodes,)} or {(nodes, layers)}"
    sound = weights.isfinite().view(nodes, -1).all(1)
    if not bool(sound.all()):
        row = int((~sound).nonzero()[0])
        return f"partition {updates.partition_ids[row]} a weight that is NaN or infinite"
    if (least := float(weights.sum(0).min())) <= 0:
        return f"weights that sum to {least:.3g}, expected 1"
    return None
