"""Recording: a step as a graph of ATen operations on tensors of fixed shapes, made by ``make_fx``."""

import logging
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor
from torch.fx import GraphModule

from .replay import Step, changes, replay

logger = logging.getLogger("flwr.clients")
Decompositions = Mapping[torch._ops.OpOverload, Callable[..., object]]


def record(
    pure: Step,
    decompositions: Decompositions,
    parameters: Sequence[Tensor],
    batch: Sequence[Tensor],
) -> Step | None:
    """Return ``pure``, which computes from its arguments alone, as a replay; None where it cannot be one.

    ``decompositions`` say which operations are recorded as others.
    """
    count, names = len(parameters), list[str]()

    def flat(*tensors: Tensor) -> list[Tensor]:
        gradients, sums = pure(tensors[:count], *tensors[count:])
        names[:] = list(sums)
        return [*gradients, *sums.values()]

    random_state = torch.get_rng_state()
    tensors = [*(p.detach() for p in parameters), *batch]
    try:
        forward = replay(_traced(flat, tensors, decompositions), tensors)
    except RuntimeError as error:  # e.g. the value of a tensor decides what is computed
        logger.debug("not traced: %s", error)
        return None
    finally:
        torch.set_rng_state(random_state)
    if forward is None:
        return None

    def step(parameters: Sequence[Tensor], *batch: Tensor) -> tuple[Sequence[Tensor], dict[str, Tensor]]:
        results = forward(*parameters, *batch)
        return results[:count], dict(zip(names, results[count:], strict=True))

    return step


def _traced(
    function: Callable[..., list[Tensor]],
    arguments: Sequence[Tensor],
    decompositions: Decompositions,
) -> GraphModule:
    """Return what ``function`` computes as a graph.

    What it changes in place is made anew there instead, such as the activations of a ResNet: the same bits.
    A change of an argument stays one.
    """
    from torch.func import functionalize
    from torch.fx.experimental.proxy_tensor import make_fx

    recorded = make_fx(function, dict(decompositions))(*arguments)
    if any(map(changes, recorded.graph.nodes)):
        recorded = make_fx(functionalize(recorded))(*arguments)
    return recorded
