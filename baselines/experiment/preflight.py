"""Find a mistake before anything is started."""

import torch
from torch import nn

from baselines.errors import UserError
from clients import private
from clients.app import check_training
from clients.inputs import compute_outputs
from strategies import WeightErosionForAll
from strategies.parts.erosion import EACH, Erosion
from strategies.parts.grouping import Grouping
from strategies.parts.privacy import Gaussian

from . import measured, model_checks, precision, promised
from .data import check_rows
from .experiment import Experiment
from .once import warn_once
from .settings import Settings


def check(this: Experiment) -> None:
    """Build everything once, and let the model see two examples.

    Raises
    ------
    UserError : for parts that cannot go together, in one line
    """
    with precision.deterministic(this.deterministic):
        _check(this)


def _check(this: Experiment) -> None:
    try:
        strategy = this.prototype
        layout = strategy.check(this.initial_arrays())
        check_training(this.training, strategy.asks())
        private.check(this.node_model, this.training.private)
        if this.training.personal is not None:
            this.training.personal.check(this.node_model, this.training.private)
    except ValueError as error:
        raise UserError(str(error)) from error
    promised.check(this, layout)
    _check_requester(this)
    _check_grouping(this)
    _warn_of_corrections(this)
    _check_own_models(this)
    _check_private(this)
    if this.dataset.site is None:
        _check_node_tests(this)
    else:
        _check_sites(this.settings)
    _check_privacy(this)
    check_rows(this.dataset, is_tested=this.settings.central_test == "all")
    if len(this.test_examples) == 0:
        _check_without_test_set(this)
    if this.deterministic:
        _check_deterministic(this)
    model_checks.check(this)


def _check_requester(this: Experiment) -> None:
    """Refuse a requester that would be replaced, and models that would be judged for another node."""
    strategy, for_all = this.prototype, isinstance(this.prototype, WeightErosionForAll)
    weighting = getattr(getattr(strategy, "inner", strategy), "weighting", None)
    if not isinstance(weighting, Erosion):
        return
    requester = this.cfg.strategy.inner.weighting.requester if for_all else weighting.requester
    if for_all and requester != EACH:
        raise UserError(
            f"weighting.requester={requester}: strategy=weight_erosion_all trains a model for each node; "
            f"leave it out, set it to {EACH}, or choose strategy=weight_erosion"
        )
    judged = getattr(this.partitioner, "requester", None)
    if judged not in (None, requester):
        raise UserError(
            f"partitioner.requester={judged}: the model for weighting.requester={requester} would be "
            "judged on another node's test examples; set both alike, or partitioner.requester=null"
        )


def _warn_of_corrections(this: Experiment) -> None:
    """Name corrections that cannot do anything; a site may have few examples, or many."""
    few_or_many = [1, 10**9]
    sizes = [len(train) for train, _ in this.partitions] if this.dataset.site is None else few_or_many
    for line in this.training.idle_corrections(sizes):
        warn_once(line)


def _check_grouping(this: Experiment) -> None:
    """Refuse fewer validation examples than the grouping takes."""
    grouping, size = getattr(this.prototype, "grouping", None), this.settings.validation_size
    if (
        isinstance(grouping, Grouping)
        and this.prototype.needs_validation
        and size < grouping.least_examples
    ):
        raise UserError(
            f"validation_size={size}: {type(grouping).__name__} is tuned on one half of the validation "
            "examples and groups by the other; set validation_size to 2 or more"
        )


def _check_node_tests(this: Experiment) -> None:
    """Deal the data, and refuse nodes that are to test and have nothing to do it with."""
    told, dealt = this.settings, this.partitions
    if told.node_test_fraction and not any(len(test) for _, test in dealt):
        raise UserError(
            f"node_test_fraction={told.node_test_fraction} leaves no node of {told.num_nodes} an example "
            "to test on: raise it, or set it to 0"
        )


def _check_sites(told: Settings) -> None:
    """Refuse what the server cannot have where the sites have all data."""
    if told.evaluation.per_node:
        own = "each site tells the server how it trained, and metrics.csv shows their mean alone"
        raise UserError(f"evaluation.per_node=true: {own}; set it to false")
    if told.validation_size:
        raise UserError(
            f"validation_size={told.validation_size}: with dataset=local the server has no training "
            "examples to set aside; set it to 0, and stop or choose by node-test/..., not validation/..."
        )


def _check_own_models(this: Experiment) -> None:
    """Refuse models that are whole at the nodes alone where the nodes are to evaluate none."""
    training, own = this.training, ""
    if training.private:
        own = f"client.private={list(training.private)}"
    elif training.personal is not None:
        own = f"client.personal={type(training.personal).__name__}"
    if own and not this.settings.node_test_fraction:
        raise UserError(
            f"{own}: the model is whole at a node alone, which is to evaluate it on a share of its data: "
            "set node_test_fraction above 0, e.g. 0.2"
        )


def _check_private(this: Experiment) -> None:
    """Refuse private layers under what would move them on the server, or judge models without them."""
    strategy, why = getattr(this.prototype, "inner", this.prototype), ""
    privacy = getattr(strategy, "privacy", None)
    if isinstance(privacy, Gaussian) and privacy.noise_multiplier > 0:
        why = "privacy's noise would move what is to stay at its node"
    elif getattr(strategy, "meta_rate", 0):
        why = "FedMeta's step on the server would move what is to stay at its node"
    elif this.prototype.needs_validation:
        why = "the server groups the nodes by models that are whole at a node alone"
    if why and (own := list(this.training.private)):
        raise UserError(f"client.private={own}: {why}; set private=none, or leave that out")


def _check_without_test_set(this: Experiment) -> None:
    """Refuse models that nobody judges, and what needs a test set on the server."""
    told, none = this.settings, measured.without_test_set(this.settings)
    if not told.node_test_fraction and not _is_unheard(this):
        raise UserError(
            f"nobody would evaluate the model: {none}, and node_test_fraction=0; let the nodes evaluate it "
            "on a share of their data, e.g. node_test_fraction=0.2"
        )
    if told.evaluation.per_class:
        raise UserError(f"evaluation.per_class=true: {none}; set it to false")
    if told.save == "best" and not told.node_test_fraction:
        raise UserError("save=best: nobody tests the models, so that none is the best; set save=last")


def _is_unheard(this: Experiment) -> bool:
    """Say whether the nodes evaluate for nobody, whatever they hold."""
    return bool(getattr(getattr(this.prototype, "privacy", None), "at_nodes", False))


def _check_privacy(this: Experiment) -> None:
    """Refuse what a node would tell without noise, and noise that somebody could take off again."""
    privacy = getattr(this.prototype, "privacy", None)
    if not isinstance(privacy, Gaussian):
        return
    if privacy.at_nodes and this.settings.node_test_fraction:
        raise UserError(
            f"node_test_fraction={this.settings.node_test_fraction}: with privacy=local nodes do not "
            "evaluate, since what they would tell has no noise; set node_test_fraction=0"
        )
    if not privacy.at_nodes and privacy.noise_multiplier > 0:
        _check_noised(this.node_model)
    if this.dataset.site is not None and not privacy.fresh:
        raise UserError(
            "privacy would not hold: sites with data of their own know privacy.noise_seed, or there is no "
            "noise; set privacy.noise_seed=null and privacy.noise_multiplier above 0"
        )


def _check_noised(model: nn.Module) -> None:
    """Refuse parameters that the server's noise would move apart."""
    if tied := promised.tied(model):
        raise UserError(
            f"the model's {tied[0]} is a parameter under a second name, and each would get its own noise: "
            "choose a model without shared parameters, or privacy=none"
        )


def _check_deterministic(this: Experiment) -> None:
    """Refuse a model of which one training step has no deterministic algorithm."""
    try:
        inputs, targets = model_checks.two_examples(this)
        with torch.random.fork_rng():
            model = this.model().train()
            loss, _ = this.dataset.task(compute_outputs(model, inputs), targets)
            torch.autograd.grad(loss, [p for p in model.parameters() if p.requires_grad], allow_unused=True)
    except Exception as error:  # whatever else is wrong is found without it, and told below
        if "deterministic" not in str(error):
            return
        first = " ".join(str(error).split()).partition(". ")[0]
        raise UserError(
            f"deterministic=true, but the model has no deterministic algorithm ({first}): choose another "
            "model, device=cpu, or deterministic=false"
        ) from error
