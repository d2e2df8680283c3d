"""Find a mistake before anything is started."""

import torch
from flwr.serverapp.strategy import Strategy
from omegaconf import OmegaConf

from clients import Classification
from clients.control_variate import gradient_weight
from strategies import Grouped, PseudoGradientStrategy, Scaffold, SelectiveFedAvg

from . import config
from .errors import UserError
from .experiment import Experiment, inner_of

OF_OURS = ("weighting", "mask", "step_size", "server_optimizer", "nodes_per_round", "min_replies")


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
        else:
            _check_foreign(this, strategy)
        inner = inner_of(strategy)
        if isinstance(inner, Scaffold) and inner.option == 2:
            gradient_weight(this.training, steps=1)
    except ValueError as error:
        raise UserError(str(error)) from error
    _ = this.training, this.partitions
    _check_model(this)


def _check_model(this: Experiment) -> None:
    """Let the model see two examples, and the task what it says of them."""
    model = this.node_model.eval()
    try:
        inputs, targets = this.test_examples.batch(slice(0, 2), this.device)
    except RuntimeError as error:  # a mean for two channels where there is one
        raise UserError(f"the data set's transform does not take its inputs: {error}") from error
    try:
        with torch.no_grad():
            outputs = model(inputs)
    except RuntimeError as error:
        raise UserError(
            f"the model does not take the data set's inputs of shape {tuple(inputs.shape[1:])} and "
            f"dtype {inputs.dtype} ({error}): choose another model or dataset"
        ) from error
    if isinstance(this.dataset.task, Classification):
        _check_labels(this, outputs.shape[1])
    try:
        this.dataset.task(outputs, targets)
    except (RuntimeError, TypeError, AttributeError) as error:
        raise UserError(f"the data set's task does not take what the model gives: {error}") from error


def _check_foreign(this: Experiment, strategy: Strategy) -> None:
    """Refuse settings that a strategy of Flower's, or of the user's own, does not read."""
    read = OmegaConf.to_yaml(this.cfg.strategy, resolve=False)
    for key in OF_OURS:
        if this.cfg[key] != config.load("")[key] and f"${{{key}" not in read:
            raise UserError(
                f"{key} does not reach {type(strategy).__name__}, which is no strategy of this suite: "
                f"leave it out, or let the strategy's file name it, as ${{{key}}}"
            )
    wanted = getattr(strategy, "min_available_nodes", 0)
    if wanted > this.cfg.num_nodes:
        raise UserError(
            f"{type(strategy).__name__} waits for {wanted} nodes, and num_nodes={this.cfg.num_nodes}: set "
            "strategy.min_available_nodes, .min_train_nodes and .min_evaluate_nodes, or more nodes"
        )


def _check_labels(this: Experiment, classes: int) -> None:
    """Refuse labels that a model's ``classes`` outputs do not stand for."""
    for name in ("train_targets", "test_targets"):
        labels = getattr(this.dataset, name)
        if len(labels) == 0:
            raise UserError(f"{name} are empty: correct the data set")
        low, high = int(labels.min()), int(labels.max())
        if labels.dtype != torch.int64 or low < 0 or high >= classes:
            raise UserError(
                f"{name} are {low} to {high}, {labels.dtype}, and the model has {classes} classes: "
                "expected int64 labels from 0 on; correct the data set, or model.num_classes"
            )
