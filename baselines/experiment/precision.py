"""Arithmetic: how a model computes on the hardware at hand, without a word to whoever trains it.

Neither choice changes what a model is: its parameters stay in their own precision, and travel as before.
"""

import torch
from torch import Tensor, nn

from baselines.errors import UserError


def prepared(model: nn.Module, device: torch.device, autocast: object, channels_last: object) -> nn.Module:
    """Return the model, made to compute as asked.

    Parameters
    ----------
    autocast : "bfloat16" computes convolutions and matrix products, forward and backward, in 16 bits, and
        what is sensitive to it in 32 (``torch.autocast``); None leaves everything in the parameters' own
    channels_last : let the weights of convolutions, and so the images between them, lie in memory pixel by
        pixel; the same sums, in another order

    Raises
    ------
    UserError : for any other choice
    """
    if autocast not in (None, "bfloat16"):  # float16 would need its loss scaled
        raise UserError(f"autocast={autocast} is unknown: expected bfloat16, or null")
    if not isinstance(channels_last, bool):
        raise UserError(f"channels_last={channels_last} is unknown: expected true or false")
    if channels_last:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if autocast is not None:
        _compute_in(torch.bfloat16, model, device)
    return model


def _compute_in(dtype: torch.dtype, model: nn.Module, device: torch.device) -> None:
    """Run the forward pass, and so the backward pass, under autocast; return what is in the model's own."""
    forward, own = model.forward, next(model.parameters()).dtype

    def cast(inputs: Tensor) -> Tensor:
        # A cached cast would be that of the parameters as they were when the step was recorded.
        with torch.autocast(device.type, dtype, cache_enabled=False):
            outputs: Tensor = forward(inputs)
        return outputs.to(own)

    model.forward = cast
