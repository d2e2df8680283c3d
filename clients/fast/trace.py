"""Recording: a step as a graph of ATen operations on tensors of fixed shapes, made by ``make_fx``."""

import logging
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from math import gcd
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Interpreter, Node
from torch.fx.graph import CodeGen
from torch.fx.node import map_arg
from torch.utils._python_dispatch import TorchDispatchMode

logger = logging.getLogger("flwr.clients")


# On a small model the calls cost more than the arithmetic, so a replay leaves out those it does not need.
# Every operation that remains is the recorded one, on the same arguments: the same bits.


Step = Callable[..., tuple[Sequence[Tensor], dict[str, Tensor]]]  # (parameters, inputs, targets, ...)
Values = dict[Node, Any]
FILL_OPERATIONS = (
    "ones_like",
    "zeros_like",
    "full_like",
    "new_ones",
    "new_zeros",
    "new_full",
)  # by shape alone
VIEW_OPERATIONS = ("expand", "view", "_unsafe_view")  # where the shape is as before


def make_replay(recorded: GraphModule, arguments: Sequence[Tensor]) -> Callable[..., list[Tensor]] | None:
    """Return a function that takes tensors of the arguments' shapes and computes what was recorded.

    None where it could differ: the graph draws random numbers or changes tensors in place. Call it under
    ``torch.no_grad``.
    """
    graph = recorded.graph
    if not all(_can_replay(node) for node in graph.nodes):
        return None
    for node in graph.find_nodes(op="call_function", target=torch.ops.aten.detach.default):
        node.replace_all_uses_with(node.args[0])
    graph.eliminate_dead_code()
    values = _compute_values(recorded, arguments)
    _drop_idle_views(graph, values)
    constants = _fold_constants(graph, values)
    for node in graph.nodes:
        if isinstance(node.target, torch._ops.OpOverload):
            node.args = _convert_factors(node, values)
            node.target = _find_function(node, values) or node.target
    # The codegen that comes with a trace folds and unfolds its arguments at every call.
    graph.set_codegen(CodeGen())  # type: ignore[no-untyped-call]
    recorded.recompile()
    return partial(recorded.forward, *constants)


def _can_replay(node: Node) -> bool:
    """Say whether an operation depends on its arguments alone and changes none of them."""
    if node.op != "call_function":
        return True
    if not isinstance(node.target, torch._ops.OpOverload):
        return node.target is operator.getitem  # takes one of an operation's several outputs
    return torch.Tag.nondeterministic_seeded not in node.target.tags and not has_side_effect(node)


def has_side_effect(node: Node) -> bool:
    """Say whether an operation changes one of its arguments."""
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


@torch.no_grad()
def _compute_values(recorded: GraphModule, arguments: Sequence[Tensor]) -> Values:
    """Return what every operation yields on these arguments."""
    interpreter = Interpreter(recorded, garbage_collect_values=False)
    interpreter.run(*arguments)
    return interpreter.env


def _drop_idle_views(graph: Graph, values: Values) -> None:
    """Leave out views that change nothing; vmap records four of them for each product."""
    for node in graph.nodes:
        if isinstance(node.target, torch._ops.OpOverload) and _name_of(node) in VIEW_OPERATIONS:
            view, viewed = values[node], values[node.args[0]]
            if view.shape == viewed.shape and view.stride() == viewed.stride():
                node.replace_all_uses_with(node.args[0])
    graph.eliminate_dead_code()


def _fold_constants(graph: Graph, values: Values) -> list[Tensor]:
    """Turn what depends on shapes alone into leading arguments, and return their values.

    It is mostly the gradient of the loss by itself, as far as the first operation that uses data.
    """
    constant = set[Node]()
    for node in graph.nodes:
        filled = isinstance(node.target, torch._ops.OpOverload) and _name_of(node) in FILL_OPERATIONS
        inputs = node.all_input_nodes
        if filled or (node.op == "call_function" and inputs and constant.issuperset(inputs)):
            constant.add(node)
    first, folded = next(iter(graph.nodes)), list[Tensor]()
    for node in [node for node in graph.nodes if node in constant]:
        users = [user for user in node.users if user not in constant and user.op != "output"]
        if users:  # what is returned is computed anew: whoever gets it may change it
            with graph.inserting_before(first):
                placeholder = graph.placeholder(f"constant_{len(folded)}")
            node.replace_all_uses_with(placeholder, delete_user_cb=users.__contains__)
            values[placeholder] = values[node]
            folded.append(values[node])
    graph.eliminate_dead_code()
    return folded


def _name_of(node: Node) -> str:
    assert isinstance(node.target, torch._ops.OpOverload)
    return str(node.target.overloadpacket.__name__)


def _convert_factors(node: Node, values: Values) -> tuple[Any, ...]:
    """Return an operation's arguments, whole-number factors of float tensors as floats.

    Torch would convert them at every call, to the same value.
    """
    if _name_of(node) != "mul" or not values[node].is_floating_point():
        return node.args
    return tuple(float(arg) if isinstance(arg, int) else arg for arg in node.args)


@torch.no_grad()
def _find_function(node: Node, values: Values) -> Callable[..., Any] | None:
    """Return the torch function that runs this operation and no other; None where there is none.

    An overload called by its own name converts its arguments twice.
    """
    function = getattr(torch, _name_of(node), None) or getattr(torch._C._nn, _name_of(node), None)
    if not callable(function):
        return None
    called = _OperationRecorder()
    try:
        with called:
            function(*map_arg(node.args, values.__getitem__), **map_arg(node.kwargs, values.__getitem__))
    except (TypeError, RuntimeError):  # a function with other parameters
        return None
    return function if called.operations == [node.target] else None


class _OperationRecorder(TorchDispatchMode):
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


Decompositions = Mapping[torch._ops.OpOverload, Callable[..., object]]


def record_step(
    pure: Step,
    decompositions: Decompositions,
    parameters: Sequence[Tensor],
    batch: Sequence[Tensor],
) -> Step | None:
    """Return ``pure``, which computes from its arguments alone, as a replay; None where it cannot be one.

    ``decompositions`` say which operations are recorded as others.
    """
    count, names = len(parameters), list[str]()

    def flat(*tensors: Tensor) -> list[Tensor]:
        gradients, sums = pure(tensors[:count], *tensors[count:])
        names[:] = list(sums)
        return [*gradients, *sums.values()]

    random_state = torch.get_rng_state()
    tensors = [*(p.detach() for p in parameters), *batch]
    try:
        forward = make_replay(_trace_graph(flat, tensors, decompositions), tensors)
    except RuntimeError as error:  # e.g. the value of a tensor decides what is computed
        logger.debug("not traced: %s", error)
        return None
    finally:
        torch.set_rng_state(random_state)
    if forward is None:
        return None

    def step(parameters: Sequence[Tensor], *batch: Tensor) -> tuple[Sequence[Tensor], dict[str, Tensor]]:
        results = forward(*parameters, *batch)
        return results[:count], dict(zip(names, results[count:], strict=True))

    return step


def _trace_graph(
    function: Callable[..., list[Tensor]],
    arguments: Sequence[Tensor],
    decompositions: Decompositions,
) -> GraphModule:
    """Return what ``function`` computes as a graph.

    Tensors that it changes in place, such as a ResNet's activations, become new tensors there: the same bits.
    Arguments are still changed in place.
    """
    from torch.func import functionalize
    from torch.fx.experimental.proxy_tensor import make_fx

    recorded = make_fx(function, dict(decompositions))(*arguments)
    if any(map(has_side_effect, recorded.graph.nodes)):
        recorded = make_fx(functionalize(recorded))(*arguments)
    return recorded


# On a CPU torch pools pixel by pixel where an image lies in memory channel by channel. Where it lies
# pixel by pixel, torch pools whole vectors of channels: up to five times as fast, conversion included.


MAX_POOL_CHANNELS = 64  # beside each other in memory; with many more of them it was slower again


def pool_by_pixels(inputs: Tensor, kernel_size: Sequence[int], *geometry: object) -> tuple[Tensor, Tensor]:
    """Return what ``torch.ops.aten.max_pool2d_with_indices`` returns, bit for bit.

    A decomposition for ``make_fx``: NotImplemented, so that the operation is recorded as it is, unless the
    inputs are a batch [examples, channels, height, width] that lies channel by channel on a CPU. Several
    examples of few channels are pooled as one of many.
    """
    if inputs.dim() != 4 or inputs.device.type != "cpu" or not inputs.is_contiguous():
        return NotImplemented
    examples, channels = inputs.shape[:2]
    merged = gcd(examples, max(1, MAX_POOL_CHANNELS // channels))
    images = inputs.view(examples // merged, merged * channels, *inputs.shape[2:])
    images = images.contiguous(memory_format=torch.channels_last)
    if images.is_contiguous():  # one channel or one pixel: there is nothing to turn
        return NotImplemented
    maxima, places = torch.ops.aten.max_pool2d_with_indices(images, kernel_size, *geometry)
    shape = (examples, channels, *maxima.shape[2:])
    return maxima.contiguous().view(shape), places.contiguous().view(shape)


# A wrong program is off by about the gradient's own norm (what it does not see has gradient 0). Another
# order of summation is off by a few units in the last place, and by more where sums cancel.


TOLERANCE = 0.01  # of a parameter's gradient; rounding may pick another maximum, which costs this much
TOLERANCE_FLOOR = 1e-4  # of all gradients together: what is below has cancelled
TOLERANCE_UNITS = (
    32  # of the coarsest precision in use: 0.25 in bfloat16, where rounding often picks another maximum
)


class PrecisionRecorder(TorchDispatchMode):
    """Notes the coarsest precision that is computed in."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.eps = 0.0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Note the result's precision."""
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor) and result.is_floating_point():
            self.eps = max(self.eps, torch.finfo(result.dtype).eps)
        return result


@contextmanager
def without_tf32() -> Iterator[None]:
    """Compute float32 on a GPU at full precision meanwhile.

    TF32, which convolutions are in by default there, keeps 10 of them: what has cancelled in a gradient
    can then differ by more than rounding where nothing is wrong.
    """
    kinds: list[Any] = [torch.backends.cudnn, torch.backends.cuda.matmul]
    try:
        before = [kind.allow_tf32 for kind in kinds]
    except RuntimeError:  # torch's newer names have been used, by which kinds of operations can differ
        kinds, before = [], []
    try:
        for kind in kinds:
            kind.allow_tf32 = False
        yield
    finally:
        for kind, allowed in zip(kinds, before, strict=True):
            kind.allow_tf32 = allowed


def are_close(gradients: Sequence[Tensor], expected: Sequence[Tensor], eps: float) -> bool:
    """Say whether two gradients are equal to rounding, parameter by parameter.

    The difference's norm may be ``TOLERANCE`` of a parameter's gradient plus ``TOLERANCE_FLOOR`` of the whole
    one; where the precision is coarse, ``TOLERANCE_UNITS * eps`` and ``TOLERANCE_UNITS / 8 * eps``. What is not
    finite, in the same parameters of both, is equal.
    """
    norms = _compute_norms(expected)
    share = max(TOLERANCE, TOLERANCE_UNITS * eps)
    allowed = (
        share * norms + max(TOLERANCE_FLOOR, TOLERANCE_UNITS / 8 * eps) * norms[norms.isfinite()].norm()
    )
    distances = _compute_norms([a - b for a, b in zip(gradients, expected, strict=True)])
    neither = ~norms.isfinite() & ~_compute_norms(gradients).isfinite()
    within = (distances <= allowed) & norms.isfinite()  # infinity is within infinity
    return bool((within | neither).all())


def is_conclusive(gradient: Sequence[Tensor]) -> bool:
    """Say whether a gradient can tell a right program from a wrong one: it is finite, and not 0."""
    norm = _compute_norms(gradient).norm()
    return bool(norm.isfinite() & (norm > 0))


def _compute_norms(tensors: Sequence[Tensor]) -> Tensor:
    return torch.stack([tensor.detach().cpu().double().norm() for tensor in tensors])
