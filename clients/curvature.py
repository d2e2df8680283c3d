"""The product of a loss' Hessian with a vector, without the Hessian."""

from collections.abc import Sequence

import torch
from torch import Tensor


@torch.enable_grad()  # type: ignore[no-untyped-call]
def hessian_product(loss: Tensor, parameters: Sequence[Tensor], vectors: Sequence[Tensor]) -> list[Tensor]:
    """Return H v, a tensor for each parameter, as ``vectors`` has them (Pearlmutter, 1994).

    ``loss`` is differentiated twice: what computes it needs second derivatives.
    """
    slopes = torch.autograd.grad(loss, parameters, create_graph=True, materialize_grads=True)
    curved = [(slope, v) for slope, v in zip(slopes, vectors, strict=True) if slope.requires_grad]
    if not curved:  # the loss is linear
        return [torch.zeros_like(v) for v in vectors]
    outputs, along = zip(*curved, strict=True)
    return list(torch.autograd.grad(outputs, parameters, along, materialize_grads=True))
