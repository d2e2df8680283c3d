"""Float64, which not every accelerator has."""

from torch import Tensor


def in_float64(values: Tensor) -> Tensor:
    """Return them in float64, in host memory where their device has no such numbers, as Apple's."""
    try:
        return values.double()
    except (TypeError, RuntimeError):  # of mps, and of xpu
        return values.cpu().double()
