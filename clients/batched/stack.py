"""Stack the parameters of many nodes in tensors [nodes, ...], and take all their steps at once.

One call (``torch.func.vmap``) computes all nodes' gradients. Smaller batches are padded with rows that do
not count; nodes with fewer steps stop earlier.
"""

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.nn import Parameter
from torch.nn.utils.rnn import pad_sequence
from torch.optim import Optimizer

from clients import optimizer_step
from clients.correction import GradientTransform, Tensors, get_transforms
from clients.examples import Examples
from clients.fast.guards import ModelSnapshot
from clients.fast.trace import Step as GradientStep
from clients.frozen import frozen_names
from clients.optimizer_step import (
    GradientPipeline,
    OptimizerStep,
    add_sgd_step,
    apply_correction,
    prepare_optimizer,
)
from clients.round import ClientRound, Node
from clients.training import LocalTraining
from strategies.shared import protocol
from strategies.shared.arrays import has_same_values
from strategies.shared.checks import void_measures

from .eligibility import NotBatchable, StackedGradient, compute_checked_gradients


def stack_transforms(turns: Sequence[ClientRound]) -> list[GradientTransform] | None:
    """Return the nodes' edits as edits of a stack.

    None where one overrides ``transform_gradients``, or nodes correct differently: then they take turns.
    """
    each = [get_transforms(turn.corrections) for turn in turns]
    known = [edits for edits in each if edits is not None]
    if len(known) < len(turns) or len({tuple(edit.kind for edit in edits) for edits in known}) > 1:
        return None
    return [_join_transforms(slot) for slot in zip(*known, strict=True)]


def _join_transforms(edits: Sequence[GradientTransform]) -> GradientTransform:
    """Return the same edit of several nodes as one of their stack."""
    lists = zip(*(edit.fixed for edit in edits), strict=True)
    return replace(
        edits[0], fixed=[[torch.stack(ts) for ts in zip(*of_nodes, strict=True)] for of_nodes in lists]
    )


def clip_stacked_gradients(gradients: Tensors, limit: float) -> Tensors:
    """Return each node's gradients, clipped as ``nn.utils.clip_grad_norm_`` does for one model."""
    squares = [g.flatten(1).square().sum(1) for g in gradients]
    factors = limit / (torch.stack(squares).sum(0).sqrt() + 1e-6)
    factors.clamp_(max=1)
    return [g * factors.view(-1, *[1] * (g.ndim - 1)) for g in gradients]


@dataclass(frozen=True)
class BatchedStep:
    """One step of the nodes that have not finished, which are the first ones.

    Parameters
    ----------
    rows : of the data set [nodes, batch], filled up with row 0
    present : which of these rows count [nodes, batch]; None for all
    is_repeat : whether it takes the examples of the step before it; None for the first one: not known yet
    number : of the step, from 0
    """

    rows: Tensor
    present: Tensor | None
    is_repeat: bool | None = None
    number: int = 0

    def has_same_rows(self, other: "BatchedStep") -> bool:
        """Say whether both take the same examples; this waits for an accelerator."""
        if not torch.equal(self.rows, other.rows):
            return False
        if self.present is None or other.present is None:
            return self.present is other.present
        return torch.equal(self.present, other.present)


@dataclass(frozen=True)
class StepPlan:
    """The steps of one round.

    Parameters
    ----------
    rows : of the data set [steps, nodes, batch], filled up with row 0, in host memory until it is placed
    lengths : how many of them count [steps, nodes]; a node that has finished takes none
    """

    rows: Tensor
    lengths: Tensor

    @classmethod
    def of(cls, turns: Sequence[ClientRound]) -> "StepPlan":
        """Plan a round of nodes, those with the most steps first."""
        chosen, counts = [], []
        for turn in turns:
            training, index, size = turn.training, turn.node.train.index, len(turn.node.train)
            if training.is_full_batch(size):
                chosen.append(index.repeat(training.steps(size)))
                counts.append(torch.full((training.steps(size),), size))
            else:
                positions = list(training.positions(size, torch.Generator().manual_seed(turn.seed)))
                chosen.append(index[torch.cat(positions)])
                counts.append(torch.tensor([len(each) for each in positions]))
        lengths = pad_sequence(counts)
        present = torch.arange(int(lengths.max())) < lengths.T[..., None]  # [nodes, steps, batch]
        rows = chosen[0].new_zeros(present.shape)
        rows[present] = torch.cat(chosen)
        return cls(rows.transpose(0, 1), lengths)

    def to_device(self, device: torch.device) -> "StepPlan":
        """Return the plan with its rows on a device, all copied at once."""
        return replace(self, rows=self.rows.to(device))

    def steps(self) -> Iterator[BatchedStep]:
        """Yield each step, its tensors where the plan's rows are."""
        lengths, batch = self.lengths, self.rows.shape[2]
        present = torch.arange(batch) < lengths[..., None]  # [steps, nodes, batch]
        nodes = (lengths > 0).sum(1).tolist()
        padded = ((lengths > 0) & (lengths < batch)).any(1).tolist()
        again, present = [None, *self.repeats], present.to(self.rows.device)
        for k, (active, short) in enumerate(zip(nodes, padded, strict=True)):
            yield BatchedStep(self.rows[k, :active], present[k, :active] if short else None, again[k], k)

    @cached_property
    def repeats(self) -> list[bool]:
        """Whether each step but the first takes the examples of the one before [steps - 1]."""
        rows = (self.rows[1:] == self.rows[:-1]).flatten(1).all(1).cpu()
        repeats: list[bool] = (rows & (self.lengths[1:] == self.lengths[:-1]).all(1)).tolist()
        return repeats


PREFETCH_BYTES = 256 * 2**20  # bytes of inputs that are gathered at once on an accelerator


@dataclass(frozen=True)
class StackedView:
    """What nodes see of one data set.

    Parameters
    ----------
    nodes : each node's examples, of the same tensors; the first's alone where all have one transform
    """

    nodes: tuple[Examples, ...]

    @classmethod
    def of(cls, turns: Sequence[ClientRound]) -> "StackedView":
        """Return the view of the nodes of a round."""
        nodes = tuple(turn.node.train for turn in turns)
        alike = all(node.transform == nodes[0].transform for node in nodes)
        return cls(nodes[:1] if alike else nodes)

    @property
    def data(self) -> Examples:
        """One node's examples, for what all nodes share."""
        return self.nodes[0]

    def has_same_inputs(self, other: "StackedView") -> bool:
        """Say whether equal rows give equal inputs, place by place."""
        transforms, others = ([node.transform for node in sight.nodes] for sight in (self, other))
        return self.data.inputs is other.data.inputs and transforms == others

    def batches(self, rows: Tensor, device: torch.device) -> list[Tensor]:
        """Return inputs and targets of rows [steps, nodes, batch], with these axes first."""
        inputs, targets = self.data.select_raw(rows.flatten(), device)
        if len(self.nodes) == 1:
            inputs = self.data.apply_transform(inputs)
        else:
            by_node = inputs.view(*rows.shape, *inputs.shape[1:]).unbind(1)
            pairs = zip(self.nodes, by_node, strict=False)  # the last nodes may have finished
            parts = [
                torch.unflatten(node.apply_transform(part.flatten(0, 1)), 0, part.shape[:2])
                for node, part in pairs
            ]
            inputs = torch.stack(parts, 1).flatten(0, 2)
        return [values.view(*rows.shape, *values.shape[1:]) for values in (inputs, targets)]


class Prefetcher:
    """The batches of a round, gathered several steps at once on an accelerator: each operation is a launch.

    On the CPU one by one: what was just gathered lies in its cache.

    Parameters
    ----------
    sight : what the nodes see
    rows : of the data set [steps, nodes, batch]
    device : where the batches go
    repeats : whether some steps take the examples of the one before; then one step is gathered at a time
    """

    def __init__(self, sight: StackedView, rows: Tensor, device: torch.device, *, repeats: bool) -> None:
        self.sight, self.rows, self.device = sight, rows, device
        self._first, self._gathered = 0, list[Tensor]()
        self._size = 1 if repeats or device.type == "cpu" else self._count_fitting_steps()

    def _count_fitting_steps(self) -> int:
        inputs = self.sight.data.inputs
        a_step = 4 * self.rows[0].numel() * math.prod(inputs.shape[1:])  # in float32
        return max(1, PREFETCH_BYTES // max(1, a_step))

    def batch(self, step: int, active: int) -> list[Tensor]:
        """Return the inputs and targets of a step's first ``active`` nodes, [active, batch, ...] each."""
        if self._size == 1:
            return [values[0] for values in self.sight.batches(self.rows[step, None, :active], self.device)]
        if not self._gathered or not self._first <= step < self._first + self._size:
            self._first = step
            self._gathered = self.sight.batches(self.rows[step : step + self._size], self.device)
        return [values[step - self._first, :active] for values in self._gathered]


class ModelStack:
    """The trained parameters of many copies of a model, one tensor [places, ...] for each parameter.

    Frozen parameters are the model's own in all copies.

    Parameters
    ----------
    node : its model is copied; its task and training are those of all nodes
    size : how many places

    Raises
    ------
    NotBatchable : when it trains, where the results would not be those of one node after another
    """

    def __init__(self, node: Node, size: int) -> None:
        self.model = node.model.train()
        self.training: LocalTraining = node.training
        self.gradients = StackedGradient(_copy_model(node.model), node.task)
        self._snapshots = (
            ModelSnapshot(node.model, node.task),
            ModelSnapshot(self.gradients.model, node.task),
        )
        self._measured: set[object] = set()  # shapes of a node's batch
        self.values = [
            p.detach().expand(size, *p.shape).clone() for p in _get_trained_parameters(node.model)
        ]
        self.stacked_gradients = [torch.zeros_like(value) for value in self.values]
        self.places = [self._place(node.model, place) for place in range(size)]
        self._frozen = frozen_names(node.model)
        self.owns = [_get_trained_parameters(place) for place in self.places]
        self._views = [[p.grad for p in own] for own in self.owns]
        self._last: tuple[StackedView, BatchedStep, list[Tensor]] | None = (
            None  # the last batch, with its view and step
        )

    def can_serve(self, node: Node) -> bool:
        """Say whether nobody has changed the model, the task or the training since it was copied."""
        alike = self.training == node.training and self.gradients.task == node.task
        alike = alike and self._frozen == frozen_names(node.model)
        return self.model is node.model.train() and alike and self._unchanged()

    def _unchanged(self) -> bool:
        return all(snapshot.is_unchanged() for snapshot in self._snapshots)

    def _place(self, model: nn.Module, place: int) -> nn.Module:
        """Return a copy of the model whose parameters and gradients lie in the stack."""
        own = _copy_model(model)
        for p, value, slope in zip(
            _get_trained_parameters(own), self.values, self.stacked_gradients, strict=True
        ):
            p.data, p.grad = value[place], slope[place]
        return own

    @torch.no_grad()
    def train(self, turns: Sequence[ClientRound]) -> list[dict[str, float]]:
        """Take all steps of nodes that sit in the first places, most steps first; return their metrics."""
        training = self.training
        if len({turn.server_round for turn in turns}) > 1:
            raise NotBatchable("nodes are in different rounds")
        if any(correction.requires_sequential for turn in turns for correction in turn.corrections):
            raise NotBatchable("a correction adds to the loss, or takes the gradient elsewhere")
        if any(correction.can_end_early for turn in turns for correction in turn.corrections):
            raise NotBatchable("a correction may end a node's round")
        if any(not self._has_equal_frozen(turn, turns[0]) for turn in turns[1:]):
            raise NotBatchable("nodes have frozen parameters of their own")
        sight, device = StackedView.of(turns), self.values[0].device
        plan = StepPlan.of(turns).to_device(sight.data.place(device))
        ahead = Prefetcher(sight, plan.rows, device, repeats=any(plan.repeats))
        parameters = [Parameter(value[: len(turns)]) for value in self.values]
        optimizer = training.optimizer(parameters)
        rate = prepare_optimizer(optimizer, training.schedule(turns[0].server_round), None)
        edits = stack_transforms(turns)
        after = GradientPipeline() if edits is None else self._make_pipeline(edits, optimizer, parameters)
        gradients_of = self.gradients.for_round(training.trace, after)
        update = OptimizerStep(parameters, optimizer, after)
        totals: dict[str, Tensor] = {}
        for now in plan.steps():
            active = len(now.rows)
            _keep_first(optimizer, active)
            gradients, sums = self._gradients(gradients_of, parameters, self._batch(ahead, now))
            if edits is None:
                gradients = self._correct_gradients(gradients, turns[:active])
            update(gradients)
            for name, value in sums.items():
                if name not in totals:
                    totals[name] = torch.zeros(len(turns), dtype=value.dtype, device=device)
                totals[name][:active] += value
        if not self._unchanged():
            raise NotBatchable("the model changes its own attributes")
        num_examples, steps = plan.lengths.sum(0), (plan.lengths > 0).sum(0)
        means = {name: (total.cpu().double() / num_examples).tolist() for name, total in totals.items()}
        return [
            void_measures({name: values[k] for name, values in means.items()})
            | {protocol.LOCAL_STEPS: int(steps[k]), protocol.LEARNING_RATE: rate}
            for k in range(len(turns))
        ]

    def _has_equal_frozen(self, turn: ClientRound, other: ClientRound) -> bool:
        return all(has_same_values(turn.sent[name], other.sent[name]) for name in self._frozen)

    def _batch(self, ahead: Prefetcher, step: BatchedStep) -> list[Tensor]:
        """Return a step's batch: the last one again where it takes the same examples."""
        if not self._is_repeated(ahead.sight, step):
            batch = ahead.batch(step.number, len(step.rows))
            if step.present is not None:
                batch.append(step.present.to(self.values[0]))
            self._last = ahead.sight, step, batch
        assert self._last is not None, "the first step of a plan repeats none"
        return self._last[2]

    def _is_repeated(self, sight: StackedView, step: BatchedStep) -> bool:
        """Say whether a step takes the last batch again; the first one of a round may, too."""
        if step.is_repeat is not None or self._last is None:
            return bool(step.is_repeat)
        return sight.has_same_inputs(self._last[0]) and step.has_same_rows(self._last[1])

    def _gradients(
        self, gradients_of: GradientStep, parameters: list[Parameter], batch: list[Tensor]
    ) -> tuple[Sequence[Tensor], dict[str, Tensor]]:
        values = [p.detach() for p in parameters]
        shape = len(batch), batch[0].shape[1:]
        try:
            if shape in self._measured:
                return gradients_of(values, *batch)
            result, is_compared = compute_checked_gradients(self.gradients, self.model, values, batch)
        except RuntimeError as error:
            raise NotBatchable(" ".join(str(error).split())) from error
        if is_compared:
            self._measured.add(shape)
        return self.gradients.finish_step(values, *result)

    def _make_pipeline(
        self, edits: Sequence[GradientTransform], optimizer: Optimizer, parameters: Sequence[Parameter]
    ) -> GradientPipeline:
        """Return what comes after the gradients, with SGD's step where it can be captured."""
        limit = self.training.max_grad_norm
        after = GradientPipeline(
            edits, None if limit is None else clip_stacked_gradients, limit or 0.0, stacked=True
        )
        inside = self.training.trace and optimizer_step.can_capture(parameters[0].device)
        return add_sgd_step(after, optimizer, parameters) if inside else after

    def _correct_gradients(
        self, gradients: Sequence[Tensor], turns: Sequence[ClientRound]
    ) -> Sequence[Tensor]:
        """Let each node's corrections change its gradients, one after another; then clip them."""
        for slope, gradient in zip(self.stacked_gradients, gradients, strict=True):
            slope[: len(turns)] = gradient
        for place, turn in enumerate(turns):
            for correction in turn.corrections:  # they read the gradients of the node's own model
                apply_correction(correction, self.owns[place])
            self._copy_back(place)
        limit, corrected = (
            self.training.max_grad_norm,
            [slope[: len(turns)] for slope in self.stacked_gradients],
        )
        return corrected if limit is None else clip_stacked_gradients(corrected, limit)

    def _copy_back(self, place: int) -> None:
        """Copy a node's gradients into the stack where a correction has put others in their place."""
        for p, view in zip(self.owns[place], self._views[place], strict=True):
            if p.grad is not view:
                if p.grad is None or view is None:
                    raise NotBatchable("a correction takes a gradient away")
                view.copy_(p.grad)
                p.grad = view


def _get_trained_parameters(model: nn.Module) -> list[Parameter]:
    return [p for p in model.parameters() if p.requires_grad]


def _copy_model(model: nn.Module) -> nn.Module:
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
