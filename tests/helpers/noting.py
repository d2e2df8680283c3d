"""A task that notes whether a GPU's convolutions would be in TF32 while it is taken."""

import torch
from torch import Tensor

from clients import Classification


def noting(seen: list[bool]) -> Classification:
    """Return it; what it notes is not its own, so that its steps can be recorded."""

    class Noting(Classification):
        def __call__(
            self, outputs: Tensor, targets: Tensor, present: Tensor | None = None
        ) -> tuple[Tensor, dict[str, Tensor]]:
            seen.append(torch.backends.cudnn.allow_tf32)
            return super().__call__(outputs, targets, present)

    return Noting()
