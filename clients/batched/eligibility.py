"""Batchable: can these nodes be batched, with the results of one after another?

It is checked beforehand that nothing is passed over. That the gradient is right is measured, once for each
shape of a batch.
"""

from collections.abc import Sequence
from inspect import isfunction
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.func import grad, vmap
from torch.nn import Parameter
from torch.optim import SGD, Adagrad, Adam, AdamW, RMSprop

from clients.examples import Examples, are_several
from clients.fast.bare_optimizer import hooked
from clients.fast.gradient import Gradient, gradient_of
from clients.fast.guards import SideEffectCheck
from clients.fast.trace import Coarsest, close, tells, without_tf32
from clients.round import Node
from clients.training import LocalTraining

# Gradients of many nodes at once: one call of ``torch.func.vmap`` for a stack of parameters.


def _by_rows(left: Tensor, right: Tensor) -> Tensor:
    """Return ``torch.bmm(left, right)`` with a product of single columns turned into one of single rows.

    MKL is slow on the former: eight times the time for [20, 30, 1000] by [20, 1000, 1] in float64.
    """
    if right.shape[2] != 1 or left.shape[1] == 1:
        return NotImplemented
    return torch.bmm(right.mT, left.mT).mT


class Gradients(Gradient):
    """Gradient and metrics of many nodes: every argument and result has a first axis over the nodes.

    Raises
    ------
    RuntimeError : by torch, where it cannot batch what the model does, such as drawing for dropout
    """

    decompositions: ClassVar = {  # the products equal to rounding only
        **Gradient.decompositions,
        torch.ops.aten.bmm.default: _by_rows,
    }

    def _pure(
        self, parameters: Sequence[Tensor], *batch: Tensor
    ) -> tuple[Sequence[Tensor], dict[str, Tensor]]:
        result: tuple[Sequence[Tensor], dict[str, Tensor]]
        result = vmap(grad(self._loss, has_aux=True))(list(parameters), *batch)
        return result

    _eager = _pure


DIFFERS = (
    "the batched gradient is not that of each node: does the model set its own forward, or the task leave "
    "present out of its means?"
)
BY_COORDINATE = (SGD, Adam, AdamW, Adagrad, RMSprop)  # optimisers whose step on a stack is each node's own


class NotBatchable(Exception):
    """These nodes cannot be batched."""


def check(nodes: Sequence[Node]) -> None:
    """Raise :class:`NotBatchable` with the reason, where there is one."""
    first, training = nodes[0], nodes[0].training
    optimizer = training.optimizer([Parameter(torch.zeros(1))])
    name = type(optimizer).__name__
    passed_over = _overridden(training, LocalTraining), _overridden(first.train, Examples)
    reasons = {
        f"{type(training).__name__} has its own {passed_over[0]}": passed_over[0] is not None,
        f"{type(first.train).__name__} has its own {passed_over[1]}": passed_over[1] is not None,
        "nodes have models of their own": any(n.model is not first.model for n in nodes),
        "nodes have tasks of their own": any(n.task != first.task for n in nodes),
        "nodes train differently": any(n.training != training for n in nodes),
        f"{name} looks at whole layers": type(optimizer) not in BY_COORDINATE,
        f"{name} has hooks, or another step": hooked(optimizer),
        "client.keep_optimizer=true": training.keep_optimizer,
        f"client.personal={type(training.personal).__name__}": training.personal is not None,
        "the model has buffers": next(first.model.buffers(), None) is not None,
        "examples are of several tensors": are_several(first.train.inputs),
        "nodes hold data of their own": any(not _shared(n.train, first.train) for n in nodes),
        "nodes hold their data differently": any(type(n.train) is not type(first.train) for n in nodes),
        "the data are augmented": any(n.train.augment is not None for n in nodes),
    }
    for reason, holds in reasons.items():
        if holds:
            raise NotBatchable(reason)


def _overridden(part: object, base: type) -> str | None:
    """Return the first method of ``base`` that a class of the user's own replaces; None for none."""
    for name, method in vars(base).items():
        called = not name.startswith("__") or name in ("__call__", "__len__")
        if called and isfunction(method) and getattr(type(part), name) is not method:
            return name
    return None


@without_tf32()
def measured(
    batched: Gradients, model: nn.Module, values: Sequence[Tensor], batch: Sequence[Tensor]
) -> tuple[tuple[Sequence[Tensor], dict[str, Tensor]], bool]:
    """Return the gradients and metrics of many nodes, and whether one node's own could be held beside.

    It cannot where it is 0 or not finite. Call it under ``torch.no_grad``.

    Parameters
    ----------
    batched : of a copy of the model
    model : the nodes' own; its trained parameters are overwritten
    values : the nodes' trained parameters [nodes, ...]
    batch : inputs, targets and, if some rows are none, which are present, [nodes, rows, ...] each

    Raises
    ------
    NotTogether : where the node's gradient, or what else its step does, differs
    """
    watch = SideEffectCheck(batched.model, batched.task)
    with Coarsest() as precision:
        gradients, sums = batched.eager(values, *batch)
    if reason := watch.changed():
        watch.put_back()
        raise NotBatchable(reason)
    node = int(batch[2].sum(1).argmin()) if len(batch) > 2 else 0
    there = batch[2][node] > 0 if len(batch) > 2 else slice(None)
    parameters = [p for p in model.parameters() if p.requires_grad]
    for p, value in zip(parameters, values, strict=True):
        p.copy_(value[node])
    plain = gradient_of(model, batched.task)
    expected, own = plain.eager(parameters, *(part[node][there] for part in batch[:2]))
    pairs = [(g[node], e) for g, e in zip(gradients, expected, strict=True)]
    metrics = [(sums[name][node], own[name]) for name in own if own[name].is_floating_point()]
    for found, right in (zip(*pairs, strict=True), zip(*metrics, strict=True) if metrics else ((), ())):
        if not close(found, right, precision.eps):
            raise NotBatchable(DIFFERS)
    return (gradients, sums), tells(expected)


def _shared(one: Examples, other: Examples) -> bool:
    return one.inputs is other.inputs and one.targets is other.targets
