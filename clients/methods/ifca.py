"""IFCA and HypCluster on the node: of several models choose the one with the least loss.

The server's half, and the papers: :mod:`strategies.ifca`.
"""

import math
from collections.abc import Iterable
from typing import ClassVar

from torch import nn

from clients.correction import Correction, RoundStart
from strategies.shared import protocol
from strategies.shared.seeding import Purpose, generator

from .uga import full_loss


class LeastLoss(Correction):
    """Chooses argmin_j F_k(w_j) of the models w_j in a message.

    F_k is the loss that the node minimises, on all of its training examples, in evaluation mode; NaN counts
    as infinite. Where several are least, as in the first round, the seed decides. It costs the node M passes
    over its data, without gradients.
    """

    config_key: ClassVar[str] = protocol.NUM_MODELS

    def __init__(self, start: RoundStart) -> None:
        pass

    @staticmethod
    def choose_model(start: RoundStart, models: Iterable[nn.Module]) -> int:
        losses = [full_loss(model, start.examples, start.task, start.batch_size) for model in models]
        losses = [math.inf if math.isnan(loss) else loss for loss in losses]
        least = [number for number, loss in enumerate(losses) if loss == min(losses)]
        if len(least) == 1:
            return least[0]
        return least[int(generator(start.seed, Purpose.MODEL_CHOICE).integers(len(least)))]
