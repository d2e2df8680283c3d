"""Two propositions of the GMA thesis (section 3.3), measured at a run's last model.

From that model w each node trains one more round, with several draws of its batches. In one coordinate,
delta_n is the update of node n, mu_n its mean over the draws, and b the run's mask. (The thesis writes
updates as w_n - w; a mask does not depend on the sign.)

* Proposition 3.3.6 bounds the least ||b * grad f(w_t)||^2 over t < T by a term in 1 / T and a floor
  (``masked_gradient``: at w_T, f the mean loss over all nodes' examples). Its log10 falls by one for ten times
  the rounds where the bound is tight.
* Proposition 3.3.7 is about coordinates in which more than tau N nodes have mu_n > 0. There b = 1, except
  with a probability of the order of exp(-(min mu_n)^2 / sigma^2), the minimum over these nodes. Both signs
  count: the proposition is symmetric.

If a share p of nodes moves up, signs agree by |2 p - 1|, so p > tau is not enough. For tau = 0.4, six nodes
up and four down agree by 0.2, and are masked however certain their signs are. ``mask_stability`` counts the
proposition's coordinates, ``mask_stability_agreeing`` those whose expected signs agree, |2 p - 1| >= tau.

Half of the draws give mu and sigma, the other half the mask. delta_n counts as Gaussian, and sigma is the
largest of the nodes' deviations.
"""

from functools import cache
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from baselines.errors import UserError
from baselines.experiment.experiment import Experiment
from clients.examples import compute_outputs
from strategies.shared.seeding import Purpose, torch_seed

from .last_model import last_model

DRAWS = 16  # of the nodes' batches, one half for the expectations
BATCH = 1000


def masked_gradient(folder: Path) -> float:
    """Return log10 of ||b * grad f(w)||^2 at a run's last model, with the mask of one more round."""
    experiment, model = last_model(folder)
    start = parameters_to_vector(model.parameters()).detach()
    mask = mask_of(_updates(experiment, start, 0), experiment)
    return float((mask * _gradient(experiment, start)).square().sum().log10())


def mask_stability(folder: Path) -> float:
    """Return how often the mask is 1 where more than tau N nodes' expected updates have one sign, in [0, 1]."""
    return _stability(folder)[0]


def mask_stability_agreeing(folder: Path) -> float:
    """Return how often the mask is 1 where the signs of the expected updates agree by tau or more."""
    return _stability(folder)[1]


def mask_bound(folder: Path) -> float:
    """Return proposition 3.3.7's bound for its coordinates: the mean of 1 - exp(-(min mu)^2 / sigma^2)."""
    return _stability(folder)[2]


@cache
def _stability(folder: Path) -> tuple[float, float, float]:
    experiment, model = last_model(folder)
    start = parameters_to_vector(model.parameters()).detach()
    draws = [_updates(experiment, start, draw) for draw in range(DRAWS)]
    masks = torch.stack([mask_of(updates, experiment) for updates in draws[DRAWS // 2 :]])
    tau = float(experiment.strategy().mask.tau)  # type: ignore[attr-defined]
    return stability(torch.stack(draws[: DRAWS // 2]), masks, tau)


def stability(updates: Tensor, masks: Tensor, tau: float) -> tuple[float, float, float]:
    """Return these three numbers, given updates [draws, nodes, P] and masks of other draws [draws, P]."""
    means, sigma = updates.mean(0), updates.std(0).amax(0)
    ups, downs = (means > 0).double().mean(0), (means < 0).double().mean(0)
    least = torch.maximum(
        torch.where(ups > tau, _least(means), 0.0), torch.where(downs > tau, _least(-means), 0.0)
    )
    covered = (ups > tau) | (downs > tau)
    agreeing = (ups - downs).abs() >= tau - 1e-9
    is_one = (masks == 1).double().mean(0)
    promised = 1 - torch.exp(-((least / sigma.clamp_min(1e-30)) ** 2))
    return float(is_one[covered].mean()), float(is_one[agreeing].mean()), float(promised[covered].mean())


def _least(means: Tensor) -> Tensor:
    """Return the least positive mean of each coordinate."""
    return torch.where(means > 0, means, torch.inf).amin(0)


def _updates(experiment: Experiment, start: Tensor, draw: int) -> Tensor:
    """Return w - w_n of each node [N, P] after a round from ``start``; ``draw`` orders its batches."""
    rows = []
    for partition_id in range(len(experiment.partitions)):
        node = experiment.node(partition_id)
        vector_to_parameters(start.clone(), node.model.parameters())
        seed = torch_seed(
            experiment.settings.seed,
            Purpose.LOCAL_TRAINING,
            server_round=draw + 1,
            partition_id=partition_id,
        )
        node.training(node.model, node.train, node.task, server_round=1, seed=seed)
        rows.append(start - parameters_to_vector(node.model.parameters()).detach())
    return torch.stack(rows)


def mask_of(updates: Tensor, experiment: Experiment) -> Tensor:
    """Return the values [P] of the run's mask for updates [N, P]."""
    mask = experiment.strategy().mask  # type: ignore[attr-defined]
    if mask.is_identity:
        raise UserError("the run has no mask: run it with mask=agreement")
    factors = torch.empty_like(updates[0])
    mask.mask_values(updates, torch.empty_like(updates), factors)
    return factors


def _gradient(experiment: Experiment, start: Tensor) -> Tensor:
    """Return the gradient [P] of the mean loss over all nodes' examples."""
    model = experiment.node(0).model
    vector_to_parameters(start.clone(), model.parameters())
    parameters, count = list(model.parameters()), 0
    total = torch.zeros_like(start)
    for partition_id in range(len(experiment.partitions)):
        node = experiment.node(partition_id)
        for first in range(0, len(node.train), BATCH):
            inputs, targets = node.train.batch(slice(first, first + BATCH), start.device)
            loss, _ = node.task(compute_outputs(model, inputs), targets)
            parts = torch.autograd.grad(loss if node.task.sums else loss * len(targets), parameters)
            total += torch.cat([part.flatten() for part in parts])
            count += len(targets)
    return total / count
