"""How many nodes train at once: as many as the limits allow, in shares of about one size."""

from functools import partial
from types import SimpleNamespace

import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from torch import nn
from torch.optim import SGD

from baselines.runtimes.inline import InlineGrid
from clients import Classification, Examples, LocalTraining, Node, client_app
from clients.batched.together import Stack, Together

NODES, FEATURES, CLASSES = 7, 3, 2
PARAMETERS = FEATURES * CLASSES + CLASSES


def shares(monkeypatch: pytest.MonkeyPatch, batch_size: int | None = 2) -> list[int]:
    """Return how many nodes each call of a stack trains, in a round of seven of four examples each."""
    return played(monkeypatch, batch_size)[0]


def played(monkeypatch: pytest.MonkeyPatch, batch_size: int | None = 2) -> tuple[list[int], list[Message]]:
    """Return that, and the nodes' replies."""
    taken: list[int] = []
    train = Stack.train

    def counted(self, turns):  # type: ignore[no-untyped-def]
        taken.append(len(turns))
        return train(self, turns)

    monkeypatch.setattr(Stack, "train", counted)
    model = nn.Linear(FEATURES, CLASSES)
    training = LocalTraining(optimizer=partial(SGD, lr=0.1), batch_size=batch_size)
    inputs, targets = torch.ones(4 * NODES, FEATURES), torch.zeros(4 * NODES, dtype=torch.int64)

    def node_of(message: Message, context: Context) -> Node:
        k = int(context.node_config["partition-id"])
        examples = Examples(inputs, targets, torch.arange(4 * k, 4 * k + 4))
        return Node(model, training, Classification(), examples, examples)

    grid = InlineGrid(client_app(node_of), NODES, Together(node_of))
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
        patch.setattr("clients.batched.together.MOST_PARAMETERS", most * PARAMETERS)
        assert shares(patch) == expected
    with monkeypatch.context() as patch:
        patch.setattr("clients.batched.together.MOST_INPUTS", most * 2 * FEATURES)
        assert shares(patch) == expected


def test_of_all_examples_the_largest_node_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clients.batched.together.MOST_INPUTS", 4 * 4 * FEATURES)
    assert shares(monkeypatch, batch_size=None) == [4, 3]


def test_at_least_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clients.batched.together.MOST_INPUTS", 1)
    assert shares(monkeypatch) == [1] * 7


def test_a_share_of_the_time_is_each_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first four train from 10 s to 14 s, the other three from 20 s to 26 s."""
    clock = SimpleNamespace(perf_counter=iter([10.0, 14.0, 20.0, 26.0]).__next__)
    monkeypatch.setattr("clients.batched.together.time", clock)
    monkeypatch.setattr("clients.batched.together.MOST_PARAMETERS", 4 * PARAMETERS)
    taken, replies = played(monkeypatch)
    assert taken == [4, 3]
    assert [reply.content["metrics"]["client-seconds"] for reply in replies] == [1.0] * 4 + [2.0] * 3
