"""Nodes that train together, as one program: the results of one after another, to rounding.

On a small model the calls of a training step cost more than its arithmetic. Here the parameters of many
nodes lie in one tensor [nodes, ...], and one call (``torch.func.vmap``) takes the step of all of them.
Unequal data sizes are filled up with rows that do not count; who has fewer steps stops earlier.
"""

import copy
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from flwr.app import Context, Message
from torch import Tensor, nn
from torch.nn import Parameter
from torch.optim import SGD, Adagrad, Adam, AdamW, Optimizer, RMSprop

from clients.app import Node, Turn
from clients.examples import Examples
from clients.fast.bare_optimizer import bare_step
from clients.gradient import Gradients
from clients.optimizer_state import prepare
from clients.training import LocalTraining
from strategies.shared import protocol

from .plan import Plan, Step

BY_COORDINATE = (SGD, Adam, AdamW, Adagrad, RMSprop)  # optimisers whose step on a stack is each node's own
MOST_PARAMETERS = 1 << 27  # in one stack
MOST_INPUTS = 5 << 17  # numbers in one step's inputs: with many more they leave the cache


class Together:
    """Answers training messages for many nodes at once.

    Parameters
    ----------
    node_of : builds the node that a message is for; all nodes have one model, task and training

    Raises
    ------
    NotTogether : when called, for a model or a training that cannot be batched; nothing has changed then
    """

    def __init__(self, node_of: Callable[[Message, Context], Node]) -> None:
        self.node_of = node_of
        self._stack: Stack | None = None

    def __call__(self, messages: Sequence[Message], contexts: Sequence[Context]) -> list[Message]:
        """Return the reply to each message, in order."""
        pairs = zip(messages, contexts, strict=True)
        nodes = [self.node_of(message, context) for message, context in pairs]
        check(nodes)
        places = _places(nodes)
        if self._stack is None or len(self._stack.places) < places:
            self._stack = Stack(nodes[0], places)
        replies: dict[int, Message] = {}
        by_steps = sorted(range(len(nodes)), key=lambda k: -nodes[k].training.steps(len(nodes[k].train)))
        for start in range(0, len(nodes), places):
            chosen = by_steps[start : start + places]
            seats = zip(chosen, self._stack.places, strict=False)
            turns = [Turn(replace(nodes[k], model=m), messages[k], contexts[k]) for k, m in seats]
            started = time.perf_counter()
            results = self._stack.train(turns)
            seconds = (time.perf_counter() - started) / len(turns)
            for k, turn, metrics in zip(chosen, turns, results, strict=True):
                replies[k] = turn.reply(metrics, seconds)
        return [replies[k] for k in range(len(nodes))]


def _places(nodes: Sequence[Node]) -> int:
    """Return how many nodes train at once: all of them, or about as many each time."""
    training, data = nodes[0].training, nodes[0].train
    parameters = sum(p.numel() for p in nodes[0].model.parameters())
    batch = training.batch_size or max(len(node.train) for node in nodes)
    inputs = batch * data.inputs[0].numel()
    most = max(1, min(MOST_PARAMETERS // parameters, MOST_INPUTS // inputs))
    times = math.ceil(len(nodes) / most)
    return math.ceil(len(nodes) / times)


class NotTogether(Exception):
    """These nodes cannot be trained as one program."""


def check(nodes: Sequence[Node]) -> None:
    """Raise :class:`NotTogether` with the reason, where there is one."""
    first, training = nodes[0], nodes[0].training
    optimizer = type(training.optimizer([Parameter(torch.zeros(1))]))
    reasons = {
        f"{optimizer.__name__} looks at whole layers": optimizer not in BY_COORDINATE,
        "client.keep_optimizer=true": training.keep_optimizer,
        "the model has buffers": next(first.model.buffers(), None) is not None,
        "the model has frozen parameters": not all(p.requires_grad for p in first.model.parameters()),
        "nodes hold data of their own": any(not _shared(n.train, first.train) for n in nodes),
        "nodes see their data differently": any(n.train.transform != first.train.transform for n in nodes),
        "the data are augmented": first.train.augment is not None,
    }
    for reason, holds in reasons.items():
        if holds:
            raise NotTogether(reason)


class Stack:
    """The parameters of many copies of a model, one tensor [places, ...] for each parameter.

    Parameters
    ----------
    node : its model is copied; its task and training are everyone's
    size : how many places
    """

    def __init__(self, node: Node, size: int) -> None:
        self.training: LocalTraining = node.training
        self.gradients = Gradients(copy.deepcopy(node.model).train(), node.task)
        self.values = [p.detach().expand(size, *p.shape).clone() for p in node.model.parameters()]
        self.slopes = [torch.zeros_like(value) for value in self.values]
        self.places = [self._place(node.model, place) for place in range(size)]
        self.owns = [list(place.parameters()) for place in self.places]
        self._last: tuple[Examples, Step, list[Tensor]] | None = None  # the last batch, and of what it is

    def _place(self, model: nn.Module, place: int) -> nn.Module:
        """Return a copy of the model whose parameters and gradients lie in the stack."""
        own = copy.deepcopy(model)
        for p, value, slope in zip(own.parameters(), self.values, self.slopes, strict=True):
            p.data, p.grad = value[place], slope[place]
        return own

    @torch.no_grad()
    def train(self, turns: Sequence[Turn]) -> list[dict[str, float]]:
        """Take all steps of nodes that sit in the first places, most steps first; return their metrics."""
        training = self.training
        data, device = turns[0].node.train, self.values[0].device
        plan = Plan.of(training, turns)
        parameters = [Parameter(value[: len(turns)]) for value in self.values]
        optimizer = training.optimizer(parameters)
        rate = prepare(optimizer, training.schedule(turns[0].server_round), None)
        step = bare_step(optimizer)
        totals: dict[str, Tensor] = {}
        for now in plan:
            active = len(now.rows)
            _keep_first(optimizer, active)
            gradients, sums = self._gradients(parameters, self._batch(data, now))
            corrected = self._corrected(gradients, turns[:active])
            for p, gradient in zip(parameters, corrected, strict=True):
                p.grad = gradient
            step()
            for name, value in sums.items():
                if name not in totals:
                    totals[name] = torch.zeros(len(turns), dtype=value.dtype, device=device)
                totals[name][:active] += value
        seen, steps = plan.lengths.sum(0), (plan.lengths > 0).sum(0)
        means = {name: (total.double().cpu() / seen).tolist() for name, total in totals.items()}
        return [
            {name: values[k] for name, values in means.items()}
            | {protocol.LOCAL_STEPS: int(steps[k]), protocol.LEARNING_RATE: rate}
            for k in range(len(turns))
        ]

    def _batch(self, data: Examples, step: Step) -> list[Tensor]:
        """Return what the task takes: the last batch again where nodes take all of their examples."""
        if self._last is None or not (_alike(data, self._last[0]) and step.same(self._last[1])):
            gathered = data.rows(step.rows.flatten(), self.values[0].device)
            batch = [values.view(*step.rows.shape, *values.shape[1:]) for values in gathered]
            if step.present is not None:
                batch.append(step.present.to(self.values[0]))
            self._last = data, step, batch
        return self._last[2]

    def _gradients(
        self, parameters: list[Parameter], batch: list[Tensor]
    ) -> tuple[Sequence[Tensor], dict[str, Tensor]]:
        try:
            return self.gradients([p.detach() for p in parameters], *batch)
        except RuntimeError as error:
            raise NotTogether(" ".join(str(error).split())) from error

    def _corrected(self, gradients: Sequence[Tensor], turns: Sequence[Turn]) -> Sequence[Tensor]:
        """Let each node's corrections, and clipping, change its gradients."""
        if turns[0].corrections:  # they look for the gradients at the node's own model
            for slope, gradient in zip(self.slopes, gradients, strict=True):
                slope[: len(turns)] = gradient
            for turn, own in zip(turns, self.owns, strict=False):
                for correction in turn.corrections:
                    correction(own)
            gradients = [slope[: len(turns)] for slope in self.slopes]
        if self.training.max_grad_norm is not None:  # as nn.utils.clip_grad_norm_ does for one model
            squares = [g.flatten(1).square().sum(1) for g in gradients]
            factors = self.training.max_grad_norm / (torch.stack(squares).sum(0).sqrt() + 1e-6)
            factors.clamp_(max=1)
            gradients = [g * factors.view(-1, *[1] * (g.ndim - 1)) for g in gradients]
        return gradients


def _shared(one: Examples, other: Examples) -> bool:
    return one.inputs is other.inputs and one.targets is other.targets


def _alike(one: Examples, other: Examples) -> bool:
    return one.inputs is other.inputs and one.transform == other.transform


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
