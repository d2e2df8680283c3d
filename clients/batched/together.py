"""Train nodes in one program; results equal those of training one after another, to rounding.

On a small model the calls of a training step cost more than its arithmetic. Here the parameters of many
nodes lie in one stack [nodes, ...] (:mod:`clients.batched.stack`); one call takes the step of all of them.
"""

import copy
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from flwr.app import Context, Message
from torch import Tensor, nn

from clients.examples import get_memory
from clients.fast.guards import restore_random_state
from clients.round import ClientRound, Node, training_of
from clients.tasks import Task

from .eligibility import NotBatchable, check_batchable
from .stack import ModelStack

# On the CPU a step's inputs must fit its cache. On an accelerator the stack may take a share of the free
# memory. A node's need is estimated from two of its examples: copies of its parameters, and what the
# forward pass keeps for the backward pass.


MAX_STACK_PARAMETERS = 1 << 27  # in one stack
MAX_STEP_INPUTS = 5 << 17  # numbers in one step's inputs: with many more they leave the cache
MEMORY_SHARE = 0.5  # of an accelerator's free memory that a stack may take
STACK_COPIES = (
    8  # of a node's parameters: value, slope, gradients, an optimiser's moments, what is computed between
)
ACTIVATION_COPIES = 3  # of what the forward pass keeps: itself, its gradient, what is computed between


class MemoryPlan:
    """Decides how many nodes train at once; free memory is read once, before the first stack takes any."""

    def __init__(self) -> None:
        self._bytes: float | None = None
        self._activation_bytes: float | None = None  # bytes that the forward pass keeps for an example

    def count_nodes(self, nodes: Sequence[Node]) -> int:
        """Return how many nodes train at once: all of them, or parts of about equal size."""
        first = nodes[0]
        batch = first.training.batch_size or max(len(node.train) for node in nodes)
        most = max(1, self._count_in_memory(first, batch) or _count_in_cache(first, batch))
        times = math.ceil(len(nodes) / most)
        return math.ceil(len(nodes) / times)

    def _count_in_memory(self, node: Node, batch: int) -> int:
        """Return how many fit an accelerator's memory; 0 on the CPU, and where that is not known."""
        device = next(node.model.parameters()).device
        if self._bytes is None:
            free, total = get_memory(device)
            # Where equal bytes are asked for, the stacks' sizes must not depend on other programs.
            self._bytes = MEMORY_SHARE * (total if torch.are_deterministic_algorithms_enabled() else free)
        if not self._bytes:
            return 0
        if self._activation_bytes is None:
            inputs, targets = node.train.batch(slice(0, 2), device)
            self._activation_bytes = count_activation_bytes(node.model, node.task, inputs, targets) / len(
                targets
            )
        parameters = sum(p.nbytes for p in node.model.parameters())
        return (
            int(
                self._bytes
                // (STACK_COPIES * parameters + ACTIVATION_COPIES * batch * self._activation_bytes)
            )
            or 1
        )


def _count_in_cache(node: Node, batch: int) -> int:
    parameters = sum(p.numel() for p in node.model.parameters())
    return min(
        MAX_STACK_PARAMETERS // parameters, MAX_STEP_INPUTS // (batch * node.train.inputs[0].numel())
    )


@torch.enable_grad()  # type: ignore[no-untyped-call]
def count_activation_bytes(model: nn.Module, task: Task, inputs: Tensor, targets: Tensor) -> int:
    """Return how many bytes a batch takes until its gradient is computed: itself, and what autograd keeps.

    Parameters are not counted.
    """
    model = copy.deepcopy(model)
    sizes: dict[int, int] = {}

    def noted(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    noted(inputs)
    with restore_random_state(), torch.autograd.graph.saved_tensors_hooks(noted, lambda tensor: tensor):
        loss, _ = task(model(inputs), targets)  # holds what is kept
    for p in model.parameters():
        sizes.pop(p.untyped_storage().data_ptr(), None)
    del loss
    return sum(sizes.values())


__all__ = ["BatchedTrainer", "ModelStack", "NotBatchable"]


class BatchedTrainer:
    """Answers training messages for many nodes at once.

    Parameters
    ----------
    node_of : builds the node that a message is for; all nodes have one model, task and training

    Raises
    ------
    NotBatchable : when called, for a model or a training that cannot be batched
    """

    def __init__(self, node_of: Callable[[Message, Context], Node]) -> None:
        self.node_of = node_of
        self._stack: ModelStack | None = None
        self._memory_plan = MemoryPlan()

    def __call__(self, messages: Sequence[Message], contexts: Sequence[Context]) -> list[Message]:
        """Return the reply to each message, in order."""
        pairs = zip(messages, contexts, strict=True)
        nodes = [self.node_of(message, context) for message, context in pairs]
        check_batchable(nodes)
        places = self._memory_plan.count_nodes(nodes)
        if self._stack is None or len(self._stack.places) < places or not self._stack.can_serve(nodes[0]):
            self._stack = ModelStack(nodes[0], places)
        replies: dict[int, Message] = {}
        triples = zip(nodes, messages, contexts, strict=True)
        steps = [training_of(node, m, context).steps(len(node.train)) for node, m, context in triples]
        by_steps = sorted(range(len(nodes)), key=lambda k: -steps[k])
        for start in range(0, len(nodes), places):
            chosen = by_steps[start : start + places]
            seats = zip(chosen, self._stack.places, strict=False)
            turns = [ClientRound(replace(nodes[k], model=m), messages[k], contexts[k]) for k, m in seats]
            started = time.perf_counter()
            results = self._stack.train(turns)
            seconds = (time.perf_counter() - started) / len(turns)
            for k, turn, metrics in zip(chosen, turns, results, strict=True):
                replies[k] = turn.make_reply(metrics, seconds)
        return [replies[k] for k in range(len(nodes))]
