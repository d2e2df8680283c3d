"""Single examples: a last batch of one, which a model with batch normalisation cannot train on."""

import torch
from torch import Tensor

from baselines.errors import UserError

from .experiment import Experiment


def check(this: Experiment, example: Tensor) -> None:
    """Refuse a model that fails on one ``example``, [1, ...], where some node has a batch of one.

    Raises
    ------
    UserError : in one line that names the first such node
    """
    if this.dataset.site is not None:
        return
    size = this.training.batch_size
    alone = [k for k, (train, _) in enumerate(this.partitions) if _has_single(len(train), size)]
    if not alone:
        return
    with torch.random.fork_rng(), torch.no_grad():
        model = this.model().to(example.device).train()
        try:
            model(example)
        except ValueError as error:
            if "more than 1 value per channel" not in str(error):
                return
            raise UserError(
                f"client.batch_size={size} leaves node {alone[0]} ({len(alone)} of "
                f"{this.settings.num_nodes} nodes) a batch of one example, on which the model's batch "
                "normalisation cannot be trained: choose another client.batch_size, or a model without"
            ) from error


def _has_single(count: int, batch_size: int | None) -> bool:
    """Say whether one of the batches of so many examples holds a single one."""
    return count == 1 or (batch_size is not None and count % batch_size == 1 % batch_size)
