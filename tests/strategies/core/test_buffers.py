"""Stacked updates lie in memory that the next round writes over; nothing of a round may refer to it."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, RecordDict

from helpers.federation import Federation, answer, assert_same, play, record, round_of, sent_model
from strategies import (
    Erosion,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedExP,
    FedGMA,
    FedYogi,
    Grouped,
    PseudoGradientStrategy,
    Scaffold,
    WeightErosion,
)
from strategies.core.replies import Workspace
from strategies.shared.protocol import CONTROL


def fresh(memory: Workspace, name: str, count: int, like: torch.Tensor) -> torch.Tensor:
    return torch.full((count, len(like)), torch.nan, dtype=like.dtype)


def node(partition_id: int, content: RecordDict) -> RecordDict:
    """Move at random; node 2 is not sound in round 2, so that its row is another's."""
    server_round = round_of(content)
    draws = np.random.default_rng((partition_id, server_round))
    w = sent_model(content)["w"] + draws.normal(size=5)
    if (partition_id, server_round) == (2, 2):
        w[:] = np.nan
    reply = answer({"w": w}, 1 + partition_id)
    reply[CONTROL] = record({"w": draws.normal(size=5)})
    return reply


def start() -> ArrayRecord:
    return record({"w": np.zeros(5)})


STRATEGIES: dict[str, Callable[[], PseudoGradientStrategy]] = {
    "fedavg": FedAvg,
    "average": lambda: FedAvg(average_last=3),
    "momentum": FedAvgM,
    "adam": FedAdam,
    "yogi": FedYogi,
    "fedexp": FedExP,
    "gma": FedGMA,
    "erosion": lambda: WeightErosion(weighting=Erosion(requester=0)),
    "scaffold": Scaffold,
    "sampled": lambda: FedAvg(nodes_per_round=3),
}


@pytest.mark.parametrize("make", STRATEGIES.values(), ids=STRATEGIES)
def test_rounds_equal_those_in_fresh_memory(
    make: Callable[[], PseudoGradientStrategy], monkeypatch: pytest.MonkeyPatch
) -> None:
    spared = make()
    actual = play(spared, Federation(node, 5), start(), range(1, 6))
    monkeypatch.setattr(Workspace, "rows", fresh)
    other = make()
    expected = play(other, Federation(node, 5), start(), range(1, 6))
    for (model, metrics), (expected_model, expected_metrics) in zip(actual, expected, strict=True):
        assert_same(model, expected_model)
        assert dict(metrics) == dict(expected_metrics)
    last = expected[-1][0]
    for name, model in other.models_to_evaluate(last).items():
        assert_same(spared.models_to_evaluate(last)[name], model)


def test_groups_take_turns_with_one_memory() -> None:
    grouped = Grouped(inner=FedAvg(), groups={"few": (0, 1), "many": (2, 3, 4)})
    play(grouped, Federation(node, 5), start(), range(1, 4))
    few, many = grouped._strategies.values()
    assert few._workspace is many._workspace is grouped.inner._workspace
    assert len(many._workspace._tensors["deltas"]) == 3


def test_fewer_rows_lie_where_more_did() -> None:
    memory = Workspace()
    three = memory.rows("a", 3, torch.empty(4, dtype=torch.float32))
    assert memory.rows("a", 2, torch.empty(4, dtype=torch.float32)).data_ptr() == three.data_ptr()
    assert memory.rows("b", 2, torch.empty(4, dtype=torch.float32)).data_ptr() != three.data_ptr()
    for shape, dtype in (((4, 4), torch.float32), ((4, 5), torch.float32), ((4, 5), torch.float64)):
        actual = memory.rows("a", shape[0], torch.empty(shape[1], dtype=dtype))
        assert (tuple(actual.shape), actual.dtype) == (shape, dtype)
