"""Find a mistake before anything is started."""

import torch

from clients.control_variate import gradient_weight
from strategies import Grouped, PseudoGradientStrategy, Scaffold, SelectiveFedAvg

from .errors import UserError
from .experiment import Experiment


def check(this: Experiment) -> None:
    """Build everything once, and let the model see two examples.

    Raises
    ------
    UserError : for parts that cannot go together, in one line
    """
    strategy = this.strategy()
    if isinstance(strategy, SelectiveFedAvg) and strategy.right_on is None:
        raise UserError(
            "strategy=selective groups the nodes by what they get right on validation examples, and "
            "validation_size=0: set how many training examples to set aside, e.g. validation_size=300"
        )
    try:
        if isinstance(strategy, PseudoGradientStrategy | Grouped):
            strategy.check(this.initial_arrays())
        inner = strategy.inner if isinstance(strategy, Grouped) else strategy
        if isinstance(inner, Scaffold) and inner.option == 2:
            gradient_weight(this.training, steps=1)
    except ValueError as error:
        raise UserError(str(error)) from error
    _ = this.training, this.partitions
    model = this.node_model.eval()
    inputs, _ = this.test_examples.batch(slice(0, 2), this.device)
    try:
        with torch.no_grad():
            model(inputs)
    except RuntimeError as error:
        raise UserError(
            f"the model does not take the data set's inputs of shape {tuple(inputs.shape[1:])} and "
            f"dtype {inputs.dtype} ({error}): choose another model or dataset"
        ) from error
