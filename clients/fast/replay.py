"""Replay: a recorded step as plain calls, with nothing around them.

A recording (:mod:`clients.fast.recording`) is a graph of ATen operations. On a small model the calls cost
more than the arithmetic, so that what can be left out of them is left out here; every operation that
remains is the recorded one, on the same arguments: the same bits.
"""

import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Interpreter, Node
from torch.fx.graph import CodeGen
from torch.fx.node import map_arg
from torch.utils._python_dispatch import TorchDispatchMode

Step = Callable[..., tuple[Sequence[Tensor], dict[str, Tensor]]]  # (parameters, inputs, targets, ...)
Values = dict[Node, Any]
FILLED = ("ones_like", "zeros_like", "full_like", "new_ones", "new_zeros", "new_full")  # by shape alone
IDLE = ("expand", "view", "_unsafe_view")  # where the shape is as before


def replay(recorded: GraphModule, arguments: Sequence[Tensor]) -> Callable[..., list[Tensor]] | None:
    """Return a function that takes tensors of the arguments' shapes and computes what was recorded.

    None where it could differ: the step draws random numbers or changes tensors in place. Call it under
    ``torch.no_grad``.
    """
    graph = recorded.graph
    if not all(_replayable(node) for node in graph.nodes):
        return None
    for node in graph.find_nodes(op="call_function", target=torch.ops.aten.detach.default):
        node.replace_all_uses_with(node.args[0])
    graph.eliminate_dead_code()
    values = _values(recorded, arguments)
    _shorten(graph, values)
    constants = _fold(graph, values)
    for node in graph.nodes:
        if isinstance(node.target, torch._ops.OpOverload):
            node.args = _floats(node, values)
            node.target = _direct(node, values) or node.target
    # The codegen that comes with a trace folds and unfolds its arguments at every call.
    graph.set_codegen(CodeGen())  # type: ignore[no-untyped-call]
    recorded.recompile()
    return partial(recorded.forward, *constants)


def _replayable(node: Node) -> bool:
    """Say whether an operation depends on its arguments alone and changes none of them."""
    if node.op != "call_function":
        return True
    if not isinstance(node.target, torch._ops.OpOverload):
        return node.target is operator.getitem  # takes one of an operation's several outputs
    return torch.Tag.nondeterministic_seeded not in node.target.tags and not changes(node)


def changes(node: Node) -> bool:
    """Say whether an operation changes one of its arguments."""
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


@torch.no_grad()
def _values(recorded: GraphModule, arguments: Sequence[Tensor]) -> Values:
    """Return what every operation yields on these arguments."""
    interpreter = Interpreter(recorded, garbage_collect_values=False)
    interpreter.run(*arguments)
    return interpreter.env


def _shorten(graph: Graph, values: Values) -> None:
    """Leave out views of a tensor as it already is; vmap records four of them for each product."""
    for node in graph.nodes:
        if isinstance(node.target, torch._ops.OpOverload) and _name(node) in IDLE:
            view, viewed = values[node], values[node.args[0]]
            if view.shape == viewed.shape and view.stride() == viewed.stride():
                node.replace_all_uses_with(node.args[0])
    graph.eliminate_dead_code()


def _fold(graph: Graph, values: Values) -> list[Tensor]:
    """Make what depends on shapes alone further arguments, the first ones, and return them.

    It is mostly the gradient of the loss by itself, on its way to the first operation that uses data.
    """
    constant = set[Node]()
    for node in graph.nodes:
        filled = isinstance(node.target, torch._ops.OpOverload) and _name(node) in FILLED
        inputs = node.all_input_nodes
        if filled or (node.op == "call_function" and inputs and constant.issuperset(inputs)):
            constant.add(node)
    first, folded = next(iter(graph.nodes)), list[Tensor]()
    for node in [node for node in graph.nodes if node in constant]:
        users = [user for user in node.users if user not in constant and user.op != "output"]
        if users:  # what is returned is computed anew: whoever gets it may change it
            with graph.inserting_before(first):
                given = graph.placeholder(f"constant_{len(folded)}")
            node.replace_all_uses_with(given, delete_user_cb=users.__contains__)
            values[given] = values[node]
            folded.append(values[node])
    graph.eliminate_dead_code()
    return folded


def _name(node: Node) -> str:
    assert isinstance(node.target, torch._ops.OpOverload)
    return str(node.target.overloadpacket.__name__)


def _floats(node: Node, values: Values) -> tuple[Any, ...]:
    """Return the arguments, a factor that is a whole number as a float beside a tensor of such.

    Torch would convert it at every call, to the same value.
    """
    if _name(node) != "mul" or not values[node].is_floating_point():
        return node.args
    return tuple(float(arg) if isinstance(arg, int) else arg for arg in node.args)


@torch.no_grad()
def _direct(node: Node, values: Values) -> Callable[..., Any] | None:
    """Return torch's function of the operation's name, where that is this operation and no other.

    An overload called by its own name converts its arguments twice.
    """
    function = getattr(torch, _name(node), None) or getattr(torch._C._nn, _name(node), None)
    if not callable(function):
        return None
    called = _Operations()
    try:
        with called:
            function(*map_arg(node.args, values.__getitem__), **map_arg(node.kwargs, values.__getitem__))
    except (TypeError, RuntimeError):  # a function with other parameters
        return None
    return function if called.operations == [node.target] else None


class _Operations(TorchDispatchMode):
    """Notes the operations that are called."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations: list[object] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Note the operation and go on."""
        self.operations.append(func)
        return func(*args, **(kwargs or {}))
