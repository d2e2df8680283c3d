"""Check whether batched nodes get the results of training one by one.

Before training: nothing that a node does may be passed over. In training: the batched gradient is compared
with one node's own, once for each shape of a batch.
"""

from collections.abc import Sequence
from inspect import isfunction
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.func import grad, vmap
from torch.nn import Parameter
from torch.optim import SGD, Adagrad, Adam, AdamW, Optimizer, RMSprop

from clients.examples import Examples, has_several_inputs
from clients.fast.gradient import Gradient, get_gradient
from clients.fast.guards import SideEffectCheck
from clients.fast.trace import PrecisionRecorder, are_close, is_conclusive, without_tf32
from clients.optimizer_step import has_hooks
from clients.round import Node
from clients.training import LocalTraining, LocalUpdate
from strategies.shared.checks import Conflict, first_message


def _multiply_by_rows(left: Tensor, right: Tensor) -> Tensor:
    """Return ``torch.bmm(left, right)`` with a product of single columns turned into one of single rows.

    MKL is slow on the former: eight times the time for [20, 30, 1000] by [20, 1000, 1] in float64.
    """
    if right.shape[2] != 1 or left.shape[1] == 1:
        return NotImplemented
    return torch.bmm(right.mT, left.mT).mT


class StackedGradient(Gradient):
    """Gradient and metrics of many nodes: every argument and result has a first axis over the nodes.

    Raises
    ------
    RuntimeError : by torch, where it cannot batch what the model does, such as drawing for dropout
    """

    decompositions: ClassVar = {  # the products equal to rounding only
        **Gradient.decompositions,
        torch.ops.aten.bmm.default: _multiply_by_rows,
    }

    def _pure(
        self, parameters: Sequence[Tensor], *batch: Tensor
    ) -> tuple[Sequence[Tensor], dict[str, Tensor]]:
        result: tuple[Sequence[Tensor], dict[str, Tensor]]
        result = vmap(grad(self._loss, has_aux=True))(list(parameters), *batch)
        return result

    _eager = _pure


GRADIENT_MISMATCH = (
    "the batched gradient is not that of each node: does the model set its own forward, or the task leave "
    "present out of its means?"
)
COORDINATEWISE_OPTIMIZERS = (
    SGD,
    Adam,
    AdamW,
    Adagrad,
    RMSprop,
)  # optimisers whose step on a stack is each node's own


class NotBatchable(Exception):
    """These nodes cannot be batched."""


def check_batchable(nodes: Sequence[Node]) -> None:
    """Raise :class:`NotBatchable` with the reason, where there is one."""
    if reason := first_message(OBSTACLES, nodes):
        raise NotBatchable(reason)


def _find_overridden_method(part: object, base: type) -> str | None:
    """Return the first method of ``base`` that the user's class overrides; None for none."""
    for name, method in vars(base).items():
        called = not name.startswith("__") or name in ("__call__", "__len__")
        if called and isfunction(method) and getattr(type(part), name) is not method:
            return name
    return None


@without_tf32()
def compute_checked_gradients(
    batched: StackedGradient, model: nn.Module, values: Sequence[Tensor], batch: Sequence[Tensor]
) -> tuple[tuple[Sequence[Tensor], dict[str, Tensor]], bool]:
    """Return the gradients and metrics of many nodes, and whether a comparison with one node's own counts.

    It does not where its gradient is 0 or not finite. Call it under ``torch.no_grad``.

    Parameters
    ----------
    batched : of a copy of the model
    model : the nodes' own; its trained parameters are overwritten
    values : the nodes' trained parameters [nodes, ...]
    batch : inputs, targets and, if some rows are padding, which are present, [nodes, rows, ...] each

    Raises
    ------
    NotBatchable : where the gradient or a metric differs, or the step has side effects
    """
    watch = SideEffectCheck(batched.model, batched.task)
    with PrecisionRecorder() as precision:
        gradients, sums = batched.eager(values, *batch)
    if reason := watch.find_side_effect():
        watch.restore_generators()
        raise NotBatchable(reason)
    node = int(batch[2].sum(1).argmin()) if len(batch) > 2 else 0
    present = batch[2][node] > 0 if len(batch) > 2 else slice(None)
    parameters = [p for p in model.parameters() if p.requires_grad]
    for p, value in zip(parameters, values, strict=True):
        p.copy_(value[node])
    plain = get_gradient(model, batched.task)
    expected, own = plain.eager(parameters, *(part[node][present] for part in batch[:2]))
    pairs = [(g[node], e) for g, e in zip(gradients, expected, strict=True)]
    metrics = [(sums[name][node], own[name]) for name in own if own[name].is_floating_point()]
    for results, own_results in (
        zip(*pairs, strict=True),
        zip(*metrics, strict=True) if metrics else ((), ()),
    ):
        if not are_close(results, own_results, precision.eps):
            raise NotBatchable(GRADIENT_MISMATCH)
    return (gradients, sums), is_conclusive(expected)


def _shared(one: Examples, other: Examples) -> bool:
    return one.inputs is other.inputs and one.targets is other.targets


# What keeps nodes from being batched: rows of the table in baselines/experiment/compatibility.py.


def _find_own_method(nodes: Sequence[Node]) -> str | None:
    first = nodes[0]
    for part, base in ((first.training, LocalTraining), (first.train, Examples)):
        if name := _find_overridden_method(part, base):
            return f"{type(part).__name__} has its own {name}"
    if first.training.update_type is not LocalUpdate:
        return f"{type(first.training).__name__} takes its own steps"
    return None


def _find_whole_layers(nodes: Sequence[Node]) -> str | None:
    optimizer = _find_optimizer(nodes)
    return f"{type(optimizer).__name__} looks at whole layers" * (
        type(optimizer) not in COORDINATEWISE_OPTIMIZERS
    )


def _find_hooks(nodes: Sequence[Node]) -> str | None:
    optimizer = _find_optimizer(nodes)
    return f"{type(optimizer).__name__} has hooks, or another step" * has_hooks(optimizer)


def _find_optimizer(nodes: Sequence[Node]) -> Optimizer:
    return nodes[0].training.optimizer([Parameter(torch.zeros(1))])


def _find_kept_optimizer(nodes: Sequence[Node]) -> str | None:
    return "client.keep_optimizer=true" if nodes[0].training.keep_optimizer else None


def _find_personal(nodes: Sequence[Node]) -> str | None:
    personal = nodes[0].training.personal
    return None if personal is None else f"client.personal={type(personal).__name__}"


BATCH_OPTION = "runtime.batch_clients=true"
OBSTACLES = (  # in this order
    Conflict(
        "client=keep_trace, or a class of your own",
        BATCH_OPTION,
        "its own methods would be passed over",
        _find_own_method,
    ),
    Conflict(
        "models of the nodes' own",
        BATCH_OPTION,
        "nodes have models of their own",
        lambda nodes: any(node.model is not nodes[0].model for node in nodes),
    ),
    Conflict(
        "tasks of the nodes' own",
        BATCH_OPTION,
        "nodes have tasks of their own",
        lambda nodes: any(node.task != nodes[0].task for node in nodes),
    ),
    Conflict(
        "local training of the nodes' own",
        BATCH_OPTION,
        "nodes train differently",
        lambda nodes: any(node.training != nodes[0].training for node in nodes),
    ),
    Conflict(
        "client_optimizer=adamp, rmsgd", BATCH_OPTION, "they look at whole layers", _find_whole_layers
    ),
    Conflict("an optimiser with hooks", BATCH_OPTION, "they would be passed over", _find_hooks),
    Conflict(
        "client.keep_optimizer=true",
        BATCH_OPTION,
        "each optimiser has a state of its own",
        _find_kept_optimizer,
    ),
    Conflict("personal=", BATCH_OPTION, "nodes come to models of their own", _find_personal),
    Conflict(
        "a model with batch normalisation",
        BATCH_OPTION,
        "the model has buffers",
        lambda nodes: next(nodes[0].model.buffers(), None) is not None,
    ),
    Conflict(
        "data of several inputs",
        BATCH_OPTION,
        "examples are of several tensors",
        lambda nodes: has_several_inputs(nodes[0].train.inputs),
    ),
    Conflict(
        "dataset=local",
        BATCH_OPTION,
        "nodes hold data of their own",
        lambda nodes: any(not _shared(node.train, nodes[0].train) for node in nodes),
    ),
    Conflict(
        "data held differently",
        BATCH_OPTION,
        "nodes hold their data differently",
        lambda nodes: any(type(node.train) is not type(nodes[0].train) for node in nodes),
    ),
    Conflict(
        "dataset.load.augment",
        BATCH_OPTION,
        "the data are augmented",
        lambda nodes: any(node.train.augment is not None for node in nodes),
    ),
)
