"""What a strategy promises of any model and any node: would it be kept for these?"""

import re
import shlex
from collections.abc import Iterable
from dataclasses import MISSING, fields

from torch import nn

from baselines.errors import UserError
from clients.correction import Correction
from strategies.parts.layout import Layout
from strategies.pseudo_gradient import PseudoGradientStrategy
from strategies.round.around import Around
from strategies.shared import protocol
from strategies.shared.compression import NoCompression

from .choices import choices
from .experiment import Experiment
from .once import warn_once

KNOWN = {value for name, value in vars(protocol).items() if name.isupper() and isinstance(value, str)}


def check(this: Experiment, layout: object) -> None:
    """Refuse what would be passed over without a word; ``layout`` is what the strategy makes of the model.

    Raises
    ------
    UserError : for something asked that no node does, and for arrays of the model that would not be treated
        as the strategy says
    """
    strategy = this.prototype
    answered = KNOWN.union(*({kind.asked_by, *kind.reads} for kind in Correction.asked_for))
    for key in strategy.asks():
        if key not in answered and not key.startswith(protocol.COMPRESSION):
            raise UserError(
                f"{strategy.name} asks nodes for {key!r}, which no imported correction reads: import the "
                "correction's module in the strategy's own, and let its asked_by or reads name the key"
            )
    rule, key = strategy, "strategy.buffer_names"
    if isinstance(strategy, Around):
        rule, key = strategy.inner, "strategy.inner.buffer_names"
    if not isinstance(rule, PseudoGradientStrategy):
        return
    _warn_of_parts(rule, this.overrides)
    if isinstance(layout, Layout):
        if type(rule.compression) is not NoCompression:
            _check_compressed(this.node_model)
        _check_buffers(this.node_model, layout, rule.buffer_names, key)


def _warn_of_parts(rule: PseudoGradientStrategy, overrides: str) -> None:
    """Say which of its own parts a user's class has lost to the usual one, which nobody chose."""
    if type(rule).__module__.startswith("strategies."):  # their files choose what they name
        return
    taken, usual = choices(overrides), choices("")
    said = {re.split("[@=]", override.lstrip("+"))[0] for override in shlex.split(overrides)}
    for part in fields(rule):
        group, own = part.name, part.default
        if group in said or group not in usual or taken[group] != usual[group] or own is MISSING:
            continue
        if type(own) is not type(getattr(rule, group)):
            chosen, line = f"{group}={usual[group]}", f"- override /{group}@_global_.{group}: ..."
            warn_once(
                f"{rule.name} runs with {chosen}, not with its own {type(own).__name__}: choose that in "
                f"the strategy's file ({line}), or say {chosen}"
            )


def tied(model: nn.Module) -> list[str]:
    """Return the further names of trained parameters that have several."""
    named = model.named_parameters(remove_duplicate=False)
    names = [name for name, p in named if p.requires_grad]
    return sorted(set(names) - {name for name, _ in model.named_parameters()})


def _check_compressed(model: nn.Module) -> None:
    """Refuse a parameter of two names: one would be compressed, and the other would undo it."""
    if twice := tied(model):
        raise UserError(
            f"the model's {twice[0]} is a parameter under a second name, which would be sent as it is: "
            "choose a model without shared parameters, or compression=none"
        )


def _check_buffers(model: nn.Module, layout: Layout, names: Iterable[str], key: str) -> None:
    """Refuse a buffer that the update rule would take for a parameter."""
    trained = {layer.name for layer in layout.parameters}
    if wrong := [name for name, _ in model.named_buffers() if name in trained]:
        listed = ",".join([*names, *dict.fromkeys(name.rpartition(".")[2] for name in wrong)])
        raise UserError(
            f"the model's buffer {wrong[0]} would be masked and optimised as a parameter is: name it, "
            f"+{key}=[{listed}]"
        )
