"""Single examples: a batch of one, as the last of an epoch may be, on which a model has to work, too.

Batch normalisation cannot train on one, and a ``squeeze()`` takes the batch for a dimension too many. A
node that has such a batch would fail in every round.
"""

import torch
from torch import Tensor

from baselines.errors import UserError
from clients.evaluation import BATCH_SIZE
from clients.inputs import Inputs, compute_outputs, tensors_of

from .experiment import Experiment


def check(this: Experiment, example: Inputs, target: Tensor) -> None:
    """Refuse a model that fails on one ``example``, [1, ...], where some node or test has a batch of one.

    Raises
    ------
    UserError : in one line that names the first such node, or the test set
    """
    if this.dataset.site is not None:  # nobody here knows how many rows a site has
        return
    size, dealt = this.training.batch_size, this.partitions
    trains = [k for k, (train, _) in enumerate(dealt) if _has_single(len(train), size)]
    sizes = {"the test set": len(this.test_examples), "the validation set": this.settings.validation_size}
    sizes |= {f"node {k}'s test set": len(test) for k, (_, test) in enumerate(dealt)}
    tests = [name for name, count in sizes.items() if _has_single(count, BATCH_SIZE)]
    if trains and (error := _error(this, example, target, is_training=True)):
        raise UserError(
            f"client.batch_size={size} leaves node {trains[0]} ({len(trains)} of "
            f"{this.settings.num_nodes} nodes) a batch of one example, on which {_why(error)}: choose "
            f"another client.batch_size, or {_other(error)}"
        ) from error
    if tests and (error := _error(this, example, target, is_training=False)):
        raise UserError(
            f"{tests[0]} ends with a batch of one example, on which {_why(error)}: {_other(error)}"
        ) from error


def _error(this: Experiment, example: Inputs, target: Tensor, is_training: bool) -> Exception | None:
    """Return what a fresh model, or the task, raises on one example; None where both can do with it."""
    with torch.random.fork_rng(), torch.no_grad():
        model = this.model().to(tensors_of(example)[0].device).train(is_training)
        try:
            this.dataset.task(compute_outputs(model, example), target)
        except Exception as error:  # whatever a forward of the user's own raises
            return error
    return None


def _is_of_normalisation(error: Exception) -> bool:
    return "more than 1 value per channel" in str(error)


def _why(error: Exception) -> str:
    if _is_of_normalisation(error):
        return "the model's batch normalisation cannot be trained"
    return f"the model fails ({type(error).__name__}: {' '.join(str(error).split())})"


def _other(error: Exception) -> str:
    if _is_of_normalisation(error):
        return "a model without"
    return (
        "correct the model: of one example it returns [1, ...], which squeeze() without a dimension breaks"
    )


def _has_single(count: int, batch_size: int | None) -> bool:
    """Say whether one of the batches of so many examples holds a single one."""
    return count == 1 or (batch_size is not None and count % batch_size == 1 % batch_size)
