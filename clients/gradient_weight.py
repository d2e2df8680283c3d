"""How far SGD moves for one gradient: SCAFFOLD and FedNova divide a node's update by it."""

import torch
from torch.nn import Parameter
from torch.optim import SGD

from .correction import OptimizerOf


def gradient_weight(optimizer: OptimizerOf, steps: int, who: str, remedy: str) -> float:
    """Return how many learning rates a parameter moves whose gradient is 1 in each of so many steps.

    It is ``steps`` in plain SGD, and the norm |a|_1 of FedNova (Wang et al., NeurIPS 2020, section 4) with
    momentum, which begins at 0. ``who`` needs it, and ``remedy`` is what to
    do where there is none.

    Raises
    ------
    ValueError : for an optimiser whose steps are no sums of gradients
    """
    built = optimizer([Parameter(torch.zeros(1))])
    settings = built.param_groups[0]
    if type(built) is not SGD or settings["maximize"]:
        name = "SGD that maximises" if type(built) is SGD else type(built).__name__
        raise ValueError(f"{who}, but client.optimizer is {name}: {remedy}")
    momentum, damping = settings["momentum"], 1 - settings["dampening"]
    if not momentum:
        return steps
    velocity = total = 0.0
    for step in range(steps):
        velocity = momentum * velocity + (damping if step else 1)
        total += 1 + momentum * velocity if settings["nesterov"] else velocity
    return total
