"""A correction: edits the gradients before each step."""

from collections.abc import Sequence

from torch.nn import Parameter

from clients import Correction, RoundStart


class Shrink(Correction):
    """g <- g + gamma w, the gradient of (gamma / 2) ||w||^2; 0 is FedAvg."""

    def __init__(self, start: RoundStart, gamma: float) -> None:
        self.gamma = gamma

    def transform_gradients(self, parameters: Sequence[Parameter]) -> None:
        for p in parameters:
            if p.grad is not None:
                p.grad.add_(p.detach(), alpha=self.gamma)
