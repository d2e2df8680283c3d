"""How many nodes train at once: as many as the limits allow, in shares of about one size."""

import copy
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from torch import Tensor, nn
from torch.optim import SGD

from baselines.runtimes.inline import InlineGrid
from clients import Classification, Examples, LocalTraining, Node, Task, client_app
from clients.batched.together import (
    ACTIVATION_COPIES,
    MEMORY_SHARE,
    STACK_COPIES,
    BatchedTrainer,
    MemoryPlan,
    ModelStack,
    count_activation_bytes,
)

NODES, FEATURES, CLASSES = 7, 3, 2
PARAMETERS = FEATURES * CLASSES + CLASSES


def shares(monkeypatch: pytest.MonkeyPatch, batch_size: int | None = 2) -> list[int]:
    """Return how many nodes each call of a stack trains, in a round of seven of four examples each."""
    return played(monkeypatch, batch_size)[0]


def played(monkeypatch: pytest.MonkeyPatch, batch_size: int | None = 2) -> tuple[list[int], list[Message]]:
    """Return that, and the nodes' replies."""
    taken: list[int] = []
    train = ModelStack.train

    def counted(self, turns):  # type: ignore[no-untyped-def]
        taken.append(len(turns))
        return train(self, turns)

    monkeypatch.setattr(ModelStack, "train", counted)
    model = nn.Linear(FEATURES, CLASSES)
    training = LocalTraining(optimizer=partial(SGD, lr=0.1), batch_size=batch_size)
    inputs, targets = torch.ones(4 * NODES, FEATURES), torch.zeros(4 * NODES, dtype=torch.int64)

    def node_of(message: Message, context: Context) -> Node:
        k = int(context.node_config["partition-id"])
        examples = Examples(inputs, targets, torch.arange(4 * k, 4 * k + 4))
        return Node(model, training, Classification(), examples, examples)

    grid = InlineGrid(client_app(node_of), NODES, BatchedTrainer(node_of))
    records = {"arrays": ArrayRecord(model.state_dict()), "config": ConfigRecord({"server-round": 1})}
    replies = grid.send_and_receive([Message(RecordDict(records), n, "train") for n in grid.get_node_ids()])
    assert not any(reply.has_error() for reply in replies)
    return taken, replies


@pytest.mark.parametrize(
    ("most", "expected"), [(100, [7]), (7, [7]), (6, [4, 3]), (4, [4, 3]), (3, [3, 3, 1]), (1, [1] * 7)]
)
def test_by_parameters_and_by_inputs(
    most: int, expected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("clients.batched.together.MAX_STACK_PARAMETERS", most * PARAMETERS)
        assert shares(patch) == expected
    with monkeypatch.context() as patch:
        patch.setattr("clients.batched.together.MAX_STEP_INPUTS", most * 2 * FEATURES)
        assert shares(patch) == expected


def test_of_all_examples_the_largest_node_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clients.batched.together.MAX_STEP_INPUTS", 4 * 4 * FEATURES)
    assert shares(monkeypatch, batch_size=None) == [4, 3]


def test_at_least_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clients.batched.together.MAX_STEP_INPUTS", 1)
    assert shares(monkeypatch) == [1] * 7


@pytest.mark.parametrize(("deterministic", "expected"), [(False, [4, 3]), (True, [7])])
def test_on_an_accelerator_memory_decides(
    deterministic: bool, expected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Room for four nodes is free, and for seven there is; with equal bytes asked for the latter counts.

    A node takes eight times its parameters, and three times what its batch of two keeps.
    """
    monkeypatch.setattr("clients.batched.together.count_activation_bytes", lambda *_: 20)  # of two examples
    monkeypatch.setattr("torch.are_deterministic_algorithms_enabled", lambda: deterministic)
    node = 8 * 4 * PARAMETERS + 3 * 2 * 10
    monkeypatch.setattr(
        "clients.batched.together.get_memory", lambda _: (2 * 4 * node + 1, 2 * 7 * node + 1)
    )
    monkeypatch.setattr("clients.batched.together.MAX_STEP_INPUTS", 1)  # of the CPU
    assert shares(monkeypatch) == expected


def test_what_is_free_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stack itself takes of it: its places would become fewer from round to round."""
    requests: list[object] = []
    monkeypatch.setattr(
        "clients.batched.together.get_memory", lambda device: requests.append(device) or (1 << 30,) * 2
    )
    examples = Examples(torch.ones(4, FEATURES), torch.zeros(4, dtype=torch.int64), torch.arange(4))
    training = LocalTraining(optimizer=partial(SGD, lr=0.1))
    nodes = [Node(nn.Linear(FEATURES, CLASSES), training, Classification(), examples, examples)] * 3
    room = MemoryPlan()
    assert [room.count_nodes(nodes), room.count_nodes(nodes)] == [3, 3]
    assert requests == [torch.device("cpu")]


def test_with_next_to_nothing_free_nodes_train_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clients.batched.together.get_memory", lambda _: (2, 2))
    assert shares(monkeypatch) == [1] * 7


@dataclass(frozen=True)
class Squares(Task):
    """The sum of the outputs' squares, which keeps the outputs."""

    def __call__(
        self, outputs: Tensor, targets: Tensor, present: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        return outputs.square().sum(), {}


def test_what_the_forward_pass_keeps_by_hand() -> None:
    """The batch, what ReLU gives, which the next layer keeps too, and the outputs; no parameters."""
    model = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))
    kept = count_activation_bytes(model, Squares(), torch.randn(4, 3), torch.zeros(4))
    assert kept == 4 * (4 * 3 + 4 * 5 + 4 * 2)


def test_counting_leaves_the_model_and_the_draws_as_they_were() -> None:
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Dropout())
    before, draws = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    assert count_activation_bytes(model, Squares(), torch.ones(4, 3), torch.zeros(4)) > 0
    assert torch.equal(draws, torch.get_rng_state())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_share_of_the_time_is_each_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first four train from 10 s to 14 s, the other three from 20 s to 26 s."""
    clock = SimpleNamespace(perf_counter=iter([10.0, 14.0, 20.0, 26.0]).__next__)
    monkeypatch.setattr("clients.batched.together.time", clock)
    monkeypatch.setattr("clients.batched.together.MAX_STACK_PARAMETERS", 4 * PARAMETERS)
    taken, replies = played(monkeypatch)
    assert taken == [4, 3]
    assert [reply.content["metrics"]["client-seconds"] for reply in replies] == [1.0] * 4 + [2.0] * 3


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch.cuda.is_available() is false")
def test_a_stack_takes_no_more_than_its_share_of_a_gpu() -> None:
    """What is counted on two examples is not less than what a step of the stack takes there."""
    model = nn.Sequential(nn.Conv2d(3, 32, 5), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 28 * 28, 10)).cuda()
    inputs, targets = torch.randn(64 * 8, 3, 32, 32), torch.zeros(64 * 8, dtype=torch.int64)
    training = LocalTraining(optimizer=partial(SGD, lr=0.1, momentum=0.9), batch_size=32)

    def node_of(message: Message, context: Context) -> Node:
        k = int(context.node_config["partition-id"])
        examples = Examples(inputs, targets, torch.arange(64 * k, 64 * k + 64))
        return Node(model, training, Classification(), examples, examples)

    grid = InlineGrid(client_app(node_of), 8, BatchedTrainer(node_of))
    records = {"arrays": ArrayRecord(model.state_dict()), "config": ConfigRecord({"server-round": 1})}
    messages = [Message(RecordDict(records), n, "train") for n in grid.get_node_ids()]
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    grid.send_and_receive(messages)
    assert grid.answering.batched_trainer is not None
    kept = count_activation_bytes(model, Classification(), inputs[:2].cuda(), targets[:2].cuda()) / 2
    parameters = sum(p.nbytes for p in model.parameters())
    counted = 8 * (STACK_COPIES * parameters + ACTIVATION_COPIES * 32 * kept)
    assert torch.cuda.max_memory_allocated() - before <= counted / MEMORY_SHARE
