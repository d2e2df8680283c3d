"""Nodes that compress: the reduction to FedAvg, divergence, private layers, and who remembers."""

import pytest
import torch
from flwr.app import ArrayRecord

from helpers.compressing import classifiers, play, quadratic, start, strategy, weights, zeros
from strategies import (
    Compression,
    FedAvg,
    Grouped,
    LowRank,
    NoCompression,
    RandomMask,
    ScaledSign,
    Sketch,
    TopK,
)


@pytest.mark.parametrize(
    "whole",
    [
        Sketch(bits=None),
        Sketch(bits=None, error_feedback=True),
        RandomMask(share=1.0),
        TopK(share=1.0),
        LowRank(share=1.0),
    ],
    ids=repr,
)
def test_all_places_as_they_are_is_fedavg_bit_for_bit(whole: Compression) -> None:
    plain = play(strategy(NoCompression()), classifiers(), start(), 3)
    coded = play(strategy(whole), classifiers(), start(), 3)
    for (one, _), (other, _) in zip(plain, coded, strict=True):
        for name in one:
            assert one[name].data == other[name].data, name


@pytest.mark.parametrize(
    "compression",
    [
        TopK(share=0.1),
        ScaledSign(),
        Sketch(0.1, 4, True),
        Sketch(0.1, None, True),
        Sketch(0.1, 4, True, True),
    ],
    ids=repr,
)
def test_a_node_that_diverges_is_left_out_and_keeps_what_it_had(
    compression: Compression, caplog: pytest.LogCaptureFixture
) -> None:
    """One number of ten is infinite, which a tenth of the places would mostly miss."""
    grid = quadratic(rate=3e38, target=torch.eye(10)[:1].T * 4)
    (node,) = grid.get_node_ids()
    grid.context(node).state["left-out"] = ArrayRecord({"weight": torch.arange(10.0)})
    play(FedAvg(num_nodes=1, compression=compression), grid, zeros(10), 1)
    assert "partition 0 left out: sent NaN or infinite values" in caplog.text
    assert weights(grid.context(node).state.array_records["left-out"]) == list(range(10))


@pytest.mark.parametrize(
    "compression",
    [Sketch(0.3, 2), Sketch(1.0, 2, rotate=True), TopK(0.1), RandomMask(0.3), LowRank()],
    ids=repr,
)
def test_a_private_layer_stays_where_it_is(compression: Compression) -> None:
    frozen = start()
    for model, _ in play(strategy(compression), classifiers(private=("3.*",)), frozen, 2):
        assert model["3.weight"].data == frozen["3.weight"].data
        assert model["0.weight"].data != frozen["0.weight"].data


def test_who_remembers() -> None:
    assert FedAvg(compression=TopK()).has_stateful_nodes
    assert not FedAvg(compression=Sketch()).has_stateful_nodes
    assert Grouped(inner=FedAvg(compression=ScaledSign())).has_stateful_nodes
    assert not FedAvg().has_stateful_nodes
