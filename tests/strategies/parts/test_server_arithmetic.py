"""The parts of a server step in plain numbers, at the places where one more or less would show."""

import logging
from dataclasses import replace

import numpy as np
import pytest
import torch
from flwr.app import MetricRecord, RecordDict

from helpers.federation import Federation, answer, model_in, play, record, sent_model
from strategies import (
    AgreementMask,
    AndMask,
    Erosion,
    Extrapolated,
    FedAvg,
    LocalOnly,
    Updates,
    WeightErosion,
)
from strategies.core.strategy import merge_metric_records
from strategies.parts.layout import Layout, blocks, squared_distances, squared_norms
from strategies.parts.weighting import get_alphas


def updates(*rows: tuple[float, ...], examples: tuple[float, ...] = ()) -> Updates:
    deltas = torch.tensor(rows, dtype=torch.float64)
    nodes, columns = deltas.shape
    return Updates(
        deltas=deltas,
        buffers=torch.zeros(nodes, 0),
        num_examples=torch.tensor(examples or [1.0] * nodes, dtype=torch.float64),
        partition_ids=tuple(range(nodes)),
        layout=Layout.of(record({"w": np.zeros(columns)})),
        start=torch.zeros(columns, dtype=torch.float64),
    )


def test_masks_by_hand() -> None:
    """A = 1, 1/3, 1/3 (one of them 0: 2/3 - 1/3), 2/3, 0 of three nodes, compared with tau = 2/3."""
    given = updates((1, 1, 1, 2, 0), (2, -1, 0, 3, 0), (3, 4, 0, 0, 0))
    weights = torch.full((3,), 1 / 3, dtype=torch.float64)
    _, hard = AndMask(2 / 3).mean_and_mask(given, weights)
    _, soft = AgreementMask(2 / 3).mean_and_mask(given, weights)
    assert hard is not None
    assert soft is not None
    assert hard.values.tolist() == [1, 0, 0, 1, 0]
    assert soft.values.tolist() == pytest.approx([1, 1 / 3, 1 / 3, 1, 0], rel=1e-12)


@pytest.mark.parametrize("kind", [AndMask, AgreementMask])
def test_a_threshold_of_0_is_no_mask(kind: type[AndMask]) -> None:
    """Not even factors of 1, which would be multiplied by."""
    weights = torch.full((2,), 0.5, dtype=torch.float64)
    assert kind(0).mean_and_mask(updates((1, -1), (1, 1)), weights)[1] is None
    assert kind(1e-9).mean_and_mask(updates((1, -1), (1, 1)), weights)[1] is not None


@pytest.mark.parametrize("agreeing", range(11))
def test_a_share_of_exactly_tau_agrees(agreeing: int) -> None:
    given = updates(*[(1.0,) if k < agreeing else (0.0,) for k in range(10)])
    weights = torch.full((10,), 0.1, dtype=torch.float64)
    for tenths in range(1, 11):
        _, factors = AndMask(tenths / 10).mean_and_mask(given, weights)
        assert factors is not None
        assert factors.values.tolist() == [float(agreeing >= tenths)]


def test_the_extrapolated_step_by_hand() -> None:
    """||Delta||^2 = 4 and 16, D = (1, 2), ||D||^2 = 5: (10) / (2 (5 + 0.5 * 0.5^t))."""
    given, weights = updates((2, 0), (0, 4)), torch.tensor([0.5, 0.5], dtype=torch.float64)
    mean = given.mean(weights)
    for server_round in (1, 2, 3):
        eta = Extrapolated(0.5, 0.5, clamp=False)(server_round, given, weights, mean)
        assert eta == pytest.approx(10 / (2 * (5 + 0.5 * 0.5**server_round)), rel=1e-12)
        assert Extrapolated(0.5, 0.5)(server_round, given, weights, mean) == 1
    still = updates((0, 0), (0, 0))
    assert Extrapolated(0)(1, still, weights, still.mean(weights)) == 1


def test_erosion_by_hand() -> None:
    """d = 0, 1, 2; alpha = 1 - (1 + p_s floor((r - 1) b / n)) p_d d, with b = 10 and n = 5, 4, 20."""
    given = updates((1, 0), (1, 1), (-1, 0), examples=(5, 4, 20))
    weighting = Erosion(0, distance_penalty=0.05, size_penalty=0.5, samples_per_round=10)
    alpha, state = [1.0, 1.0, 1.0], {}
    for server_round in (1, 2, 3, 4):
        wear = [1 + 0.5 * ((server_round - 1) * 10 // n) for n in (5, 4, 20)]
        alpha = [max(0, a - w * 0.05 * d) for a, w, d in zip(alpha, wear, (0, 1, 2), strict=True)]
        weights, state = weighting(given, state)
        assert weights.tolist() == pytest.approx([a / sum(alpha) for a in alpha], rel=1e-12)
        assert int(state["rounds"]) == server_round
    actual = weighting.metrics(given, weights, state)
    assert actual == pytest.approx({f"weight-{k}": a for k, a in enumerate(alpha)}, rel=1e-12)


def test_alphas_are_one_where_nothing_is_known() -> None:
    known = torch.tensor([0.5, 0.25], dtype=torch.float64)
    assert get_alphas({}, 2).tolist() == [1, 1]
    assert get_alphas({"alpha": known}, 4).tolist() == [0.5, 0.25, 1, 1]
    assert get_alphas({"alpha": known}, 1).tolist() == [0.5, 0.25]


@pytest.mark.parametrize("rows", [1, 3])
def test_norms_and_distances(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strategies.parts.layout.CHUNK_ELEMENTS", 2)
    values = torch.arange(5.0 * rows).view(rows, 5) - 2
    expected = values.double().square().sum(1)
    torch.testing.assert_close(squared_norms(values), expected)
    torch.testing.assert_close(squared_norms(values[0]), expected[0])
    point = torch.full((5,), 1.5)
    torch.testing.assert_close(squared_distances(values, point), (values - point).double().square().sum(1))


@pytest.mark.parametrize(("stop", "start"), [(0, 0), (5, 0), (8, 0), (9, 0), (9, 3), (11, 3)])
def test_blocks_cover_each_number_once(stop: int, start: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strategies.parts.layout.CPU_BLOCK_COLUMNS", 4)
    actual = [range(10**6)[block] for block in blocks(torch.zeros(20), slice(start, stop))]
    assert [k for block in actual for k in block] == list(range(start, stop))
    assert all(len(block) == 4 for block in actual[:-1])


@pytest.mark.parametrize(("nodes", "least", "most"), [(None, 1, 1), (10, 5, 8), (1000, 100, 180)])
def test_an_accelerator_takes_few_large_blocks(nodes: int | None, least: int, most: int) -> None:
    """Of a ResNet-18's parameters: each operation on a block is a launch there; 171 on a CPU."""
    shape = (11_200_000,) if nodes is None else (nodes, 11_200_000)
    count = len(list(blocks(torch.empty(shape, device="meta"))))
    assert least <= count <= most
    assert len(list(blocks(torch.empty(1).expand(shape)))) == 171


def test_merged_sums_counts_and_averages_the_rest_over_those_that_have_it() -> None:
    one = MetricRecord({"replies": 3, "failed": 1, "loss": 2.0, "accuracy": 0.5})
    other = MetricRecord({"replies": 2, "failed": 0, "loss": 5.0})
    actual = merge_metric_records([one, other], [1, 3])
    assert dict(actual) == {"replies": 5, "failed": 1, "loss": (2 + 3 * 5) / 4, "accuracy": 0.5}


def test_merged_adds_from_left_to_right_on_every_python() -> None:
    """From Python 3.12 on ``sum`` corrects its rounding: the mean of six times 0.1 would be 0.1."""
    assert merge_metric_records([MetricRecord({"loss": 0.1})] * 6, [1] * 6)["loss"] == 0.09999999999999999


def test_nodes_of_the_erosion_are_asked_beside_their_requester() -> None:
    grid = Federation(lambda k, content: answer(sent_model(content)), 4)
    strategy = WeightErosion(weighting=Erosion(2), nodes_per_round=2, num_nodes=4)
    model = record({"w": np.zeros(3)})
    sampled = set()
    for server_round in range(1, 30):
        play(strategy, grid, model, (server_round,))
        chosen = grid.trained()
        assert len(chosen) == 2
        assert 2 in chosen
        sampled |= set(chosen)
    assert sampled == {0, 1, 2, 3}
    state = {"alpha": torch.tensor([1.0, 0.0, 1.0, 1e-9], dtype=torch.float64)}
    strategy.server_state = replace(strategy.server_state, weighting=state)
    assert strategy.choose([0, 1, 2, 3], 1) in ([0, 2], [2, 3])
    alone = WeightErosion(weighting=Erosion(2), nodes_per_round=1)
    assert alone.choose([0, 1, 2, 3], 1) == [2]
    assert 2 not in WeightErosion(weighting=Erosion(2)).choose([0, 1, 3], 1)


def test_a_failed_round_counts_until_the_last_that_is_allowed(caplog: pytest.LogCaptureFixture) -> None:
    def node(partition_id: int, content: RecordDict) -> RecordDict:
        return answer({"w": np.full(2, np.nan)})

    grid = Federation(node, 5)
    strategy = FedAvg(max_failed_rounds=3)
    with caplog.at_level(logging.WARNING):
        history = play(strategy, grid, record({"w": np.zeros(2)}), (1, 2))
    assert [metrics["failed"] for _, metrics in history] == [5, 5]
    with pytest.raises(RuntimeError, match="3 rounds in a row failed: 0 sound replies") as caught:
        play(strategy, grid, record({"w": np.zeros(2)}), (3,))
    assert str(caught.value).count("partition") == 3  # not all five


def test_local_models_are_averaged_over_their_nodes() -> None:
    def node(partition_id: int, content: RecordDict) -> RecordDict:
        return answer({"w": sent_model(content)["w"] + partition_id}, partition_id + 1)

    ((mean, metrics),) = play(LocalOnly(inner=FedAvg()), Federation(node, 3), record({"w": np.zeros(2)}))
    assert model_in(mean)["w"].tolist() == [1, 1]
    assert metrics["replies"] == 3
