"""What the layers of a run's last model have learnt: the FedER thesis' figure 2.1 and section 2.2.

Each number is a mean over the model's convolutions and the two unfoldings of each, computed from the
singular values that EVBMF keeps (:mod:`strategies.shared.linalg`). Figure 2.1 shows how the noise of the
initialisation vanishes; section 2.2.2 measures the rest by stable rank, condition number and effective
rank.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from torch import Tensor

from baselines.errors import UserError
from strategies.shared import linalg

from .last_model import last_model


def noise_share(folder: Path) -> float:
    """Return the share of the layers' squared norms that is noise, in [0, 1]."""
    return _mean(folder, linalg.noise_share)


def effective_rank(folder: Path) -> float:
    """Return the entropy of the layers' singular values, in nats."""
    return _mean(folder, linalg.effective_rank)


def stable_rank(folder: Path) -> float:
    """Return the layers' sum d^2 / max d^2."""
    return _mean(folder, linalg.stable_rank)


def condition_number(folder: Path) -> float:
    """Return the layers' max d / min d; a layer that is all noise counts 0."""
    return _mean(folder, linalg.condition_number)


def _mean(folder: Path, measure: Callable[[Tensor], float]) -> float:
    _, model = last_model(folder)
    weights = [p.detach() for p in model.parameters() if p.ndim == 4]
    if not weights:
        raise UserError(
            f"{folder} has a model without a convolution: choose one that has some, model=lenet"
        )
    return float(np.mean(linalg.mean_over_unfoldings(measure, weights)))
