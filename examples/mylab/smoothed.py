"""A loss in place of the data set's: cross-entropy with smoothed labels."""

from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from clients import Correction, RoundStart


class Smoothed(Correction):
    """A label counts for 1 - share, all for share; 0 is cross-entropy."""

    def __init__(self, start: RoundStart, share: float) -> None:
        self.share = share

    def replace_loss(
        self, model: nn.Module, inputs: Tensor, outputs: Tensor, targets: Tensor
    ) -> Tensor:
        return cross_entropy(outputs, targets, label_smoothing=self.share)
