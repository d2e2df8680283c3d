"""Stack: the parameters of many nodes in one tensor [nodes, ...], and the steps of all of them at once.

One call (``torch.func.vmap``) computes all nodes' gradients. Unequal data sizes are filled up with rows
that do not count; who has fewer steps stops earlier.
"""

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import Parameter
from torch.optim import Optimizer

from clients.correction import Edit
from clients.fast import graphs
from clients.fast.after import After, with_sgd
from clients.fast.replay import Step as GradientStep
from clients.fast.steady import Kept
from clients.frozen import frozen_names
from clients.optimizer_state import prepare
from clients.training import LocalTraining
from clients.turn import Node, Turn
from clients.update import Update, apply
from strategies.shared import protocol
from strategies.shared.divergence import void_measures
from strategies.shared.frozen import has_same_values

from .batchable import NotTogether, measured
from .edits import clipped, stacked
from .gradients import Gradients
from .plan import Plan, Step
from .sight import Ahead, Sight


class Stack:
    """The trained parameters of many copies of a model, one tensor [places, ...] for each parameter.

    Frozen parameters are the model's own in all copies.

    Parameters
    ----------
    node : its model is copied; its task and training are everyone's
    size : how many places

    Raises
    ------
    NotTogether : when it trains, where the results would not be those of one node after another
    """

    def __init__(self, node: Node, size: int) -> None:
        self.model = node.model.train()
        self.training: LocalTraining = node.training
        self.gradients = Gradients(_copy(node.model), node.task)
        self._kept = Kept(node.model, node.task), Kept(self.gradients.model, node.task)
        self._measured: set[object] = set()  # shapes of a node's batch
        self.values = [p.detach().expand(size, *p.shape).clone() for p in _trained(node.model)]
        self.slopes = [torch.zeros_like(value) for value in self.values]
        self.places = [self._place(node.model, place) for place in range(size)]
        self._frozen = frozen_names(node.model)
        self.owns = [_trained(place) for place in self.places]
        self._views = [[p.grad for p in own] for own in self.owns]
        self._last: tuple[Sight, Step, list[Tensor]] | None = None  # the last batch, and of what it is

    def serves(self, node: Node) -> bool:
        """Say whether nobody has changed the model, the task or the training since it was copied."""
        alike = self.training == node.training and self.gradients.task == node.task
        alike = alike and self._frozen == frozen_names(node.model)
        return self.model is node.model.train() and alike and self._unchanged()

    def _unchanged(self) -> bool:
        return all(kept.holds() for kept in self._kept)

    def _place(self, model: nn.Module, place: int) -> nn.Module:
        """Return a copy of the model whose parameters and gradients lie in the stack."""
        own = _copy(model)
        for p, value, slope in zip(_trained(own), self.values, self.slopes, strict=True):
            p.data, p.grad = value[place], slope[place]
        return own

    @torch.no_grad()
    def train(self, turns: Sequence[Turn]) -> list[dict[str, float]]:
        """Take all steps of nodes that sit in the first places, most steps first; return their metrics."""
        training = self.training
        if len({turn.server_round for turn in turns}) > 1:
            raise NotTogether("nodes are in different rounds")
        if any(correction.alone for turn in turns for correction in turn.corrections):
            raise NotTogether("a correction adds to the loss, or takes the gradient elsewhere")
        if any(correction.may_end for turn in turns for correction in turn.corrections):
            raise NotTogether("a correction may end a node's round")
        if any(not self._has_frozen_of(turn, turns[0]) for turn in turns[1:]):
            raise NotTogether("nodes have frozen parameters of their own")
        sight, device = Sight.of(turns), self.values[0].device
        plan = Plan.of(turns).placed(sight.data.place(device))
        ahead = Ahead(sight, plan.rows, device, repeats=any(plan.repeats))
        parameters = [Parameter(value[: len(turns)]) for value in self.values]
        optimizer = training.optimizer(parameters)
        rate = prepare(optimizer, training.schedule(turns[0].server_round), None)
        edits = stacked(turns)
        after = After() if edits is None else self._after(edits, optimizer, parameters)
        gradients_of = self.gradients.of_round(training.trace, after)
        update = Update(parameters, optimizer, after)
        totals: dict[str, Tensor] = {}
        for now in plan.steps():
            active = len(now.rows)
            _keep_first(optimizer, active)
            gradients, sums = self._gradients(gradients_of, parameters, self._batch(ahead, now))
            if edits is None:
                gradients = self._corrected(gradients, turns[:active])
            update(gradients)
            for name, value in sums.items():
                if name not in totals:
                    totals[name] = torch.zeros(len(turns), dtype=value.dtype, device=device)
                totals[name][:active] += value
        if not self._unchanged():
            raise NotTogether("the model changes its own attributes")
        seen, steps = plan.lengths.sum(0), (plan.lengths > 0).sum(0)
        means = {name: (total.cpu().double() / seen).tolist() for name, total in totals.items()}
        return [
            void_measures({name: values[k] for name, values in means.items()})
            | {protocol.LOCAL_STEPS: int(steps[k]), protocol.LEARNING_RATE: rate}
            for k in range(len(turns))
        ]

    def _has_frozen_of(self, turn: Turn, other: Turn) -> bool:
        return all(has_same_values(turn.sent[name], other.sent[name]) for name in self._frozen)

    def _batch(self, ahead: Ahead, step: Step) -> list[Tensor]:
        """Return what the task takes: the last batch again where nodes take all of their examples."""
        if not self._repeats(ahead.sight, step):
            batch = ahead.batch(step.number, len(step.rows))
            if step.present is not None:
                batch.append(step.present.to(self.values[0]))
            self._last = ahead.sight, step, batch
        assert self._last is not None, "the first step of a plan repeats none"
        return self._last[2]

    def _repeats(self, sight: Sight, step: Step) -> bool:
        """Say whether a step takes the last batch again; the first one of a round may, too."""
        if step.again is not None or self._last is None:
            return bool(step.again)
        return sight.same(self._last[0]) and step.same(self._last[1])

    def _gradients(
        self, gradients_of: GradientStep, parameters: list[Parameter], batch: list[Tensor]
    ) -> tuple[Sequence[Tensor], dict[str, Tensor]]:
        values = [p.detach() for p in parameters]
        shape = len(batch), batch[0].shape[1:]
        try:
            if shape in self._measured:
                return gradients_of(values, *batch)
            result, told = measured(self.gradients, self.model, values, batch)
        except RuntimeError as error:
            raise NotTogether(" ".join(str(error).split())) from error
        if told:
            self._measured.add(shape)
        return self.gradients.finished(values, *result)

    def _after(self, edits: Sequence[Edit], optimizer: Optimizer, parameters: Sequence[Parameter]) -> After:
        """Return what comes after the gradients; SGD's step in it where it can be captured."""
        limit = self.training.max_grad_norm
        after = After(edits, None if limit is None else clipped, limit or 0.0, stacked=True)
        inside = self.training.trace and graphs.capturable(parameters[0].device)
        return with_sgd(after, optimizer, parameters) if inside else after

    def _corrected(self, gradients: Sequence[Tensor], turns: Sequence[Turn]) -> Sequence[Tensor]:
        """Let each node's corrections change its gradients, one after another; then clip them."""
        for slope, gradient in zip(self.slopes, gradients, strict=True):
            slope[: len(turns)] = gradient
        for place, turn in enumerate(turns):
            for correction in turn.corrections:  # they look for the gradients at the node's own model
                apply(correction, self.owns[place])
            self._take_back(place)
        limit, corrected = self.training.max_grad_norm, [slope[: len(turns)] for slope in self.slopes]
        return corrected if limit is None else clipped(corrected, limit)

    def _take_back(self, place: int) -> None:
        """Copy a node's gradients into the stack where a correction has put others in their place."""
        for p, view in zip(self.owns[place], self._views[place], strict=True):
            if p.grad is not view:
                if p.grad is None or view is None:
                    raise NotTogether("a correction takes a gradient away")
                view.copy_(p.grad)
                p.grad = view


def _trained(model: nn.Module) -> list[Parameter]:
    return [p for p in model.parameters() if p.requires_grad]


def _copy(model: nn.Module) -> nn.Module:
    """Return a copy of a model that shares its frozen parameters."""
    return copy.deepcopy(model, {id(p): p for p in model.parameters() if not p.requires_grad})


def _keep_first(optimizer: Optimizer, active: int) -> None:
    """Let the optimiser go on with the first ``active`` nodes of its stack."""
    for group in optimizer.param_groups:
        for p in group["params"]:
            if len(p) > active:
                state = optimizer.state[p]
                for name, value in state.items():
                    if isinstance(value, Tensor) and value.shape == p.shape:
                        state[name] = value[:active]
                p.data = p.data[:active]
