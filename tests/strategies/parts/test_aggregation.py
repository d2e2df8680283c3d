"""The aggregations: vectors by hand, NumPy and SciPy, and what one hostile node can do."""

import numpy as np
import pytest
import torch
from flwr.app import RecordDict
from scipy.stats import trim_mean
from torch import Tensor

from helpers.federation import Federation, answer, assert_same, model_in, play, record
from strategies import (
    Aggregation,
    AgreementMask,
    EffectiveRank,
    Extrapolated,
    FedAvg,
    Krum,
    Mean,
    Median,
    NoMask,
    TooManyFailedRounds,
    TrimmedMean,
    Uniform,
    Updates,
)
from strategies.parts.layout import CPU_BLOCK_COLUMNS, Layout


def updates(deltas: Tensor, buffers: Tensor | None = None) -> Updates:
    nodes, columns = deltas.shape
    layout = Layout.of(record({"w": np.zeros(columns, np.float64)}))
    buffers = torch.zeros(nodes, 0, dtype=torch.float64) if buffers is None else buffers
    return Updates(
        deltas, buffers, torch.ones(nodes), tuple(range(nodes)), layout, torch.zeros(columns).to(deltas)
    )


def aggregated(aggregation: Aggregation, deltas: Tensor) -> Tensor:
    given = updates(deltas)
    weights = aggregation.weights(given, Uniform()(given, {})[0])
    return aggregation.aggregate(given, weights, NoMask())[0]


def rows(*values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_by_hand() -> None:
    deltas = rows([1.0, -4.0], [2.0, 0.0], [3.0, 1.0], [100.0, 3.0], [6.0, 2.0])
    assert aggregated(Mean(), deltas).tolist() == pytest.approx([22.4, 0.4])
    assert aggregated(Median(), deltas).tolist() == [3.0, 1.0]
    assert aggregated(Median(), deltas[:4]).tolist() == [2.5, 0.5]
    assert aggregated(TrimmedMean(0.2), deltas).tolist() == pytest.approx([11 / 3, 1.0])
    assert aggregated(TrimmedMean(0.19), deltas).tolist() == pytest.approx([22.4, 0.4])


def test_krum_by_hand() -> None:
    """K = 5, f = 1: a score sums the two least squares: 1 + 4, 1 + 1, 1 + 4, 49 + 64, 2500 + ..."""
    deltas = rows([0.0], [1.0], [2.0], [9.0], [-50.0])
    assert aggregated(Krum(), deltas).tolist() == [1.0]
    assert aggregated(Krum(num_selected=3), deltas).tolist() == [1.0]
    assert aggregated(Krum(num_selected=2), deltas).tolist() == [0.5]  # of equal scores the first
    assert aggregated(Krum(num_selected=4), deltas).tolist() == [3.0]
    assert aggregated(Krum(num_hostile=0), deltas[:3]).tolist() == [0.0]  # one neighbour each: 1, 1, 1


@pytest.mark.parametrize("nodes", [1, 2, 5, 8, 30])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_as_numpy_and_scipy(nodes: int, dtype: torch.dtype) -> None:
    """Over more columns than a block has."""
    deltas = torch.randn(
        nodes, CPU_BLOCK_COLUMNS + 3, generator=torch.Generator().manual_seed(nodes), dtype=dtype
    )
    close = {"rtol": 0, "atol": 4 * torch.finfo(dtype).eps}
    median, array = torch.from_numpy(np.median(deltas.numpy(), axis=0)), deltas.numpy()
    torch.testing.assert_close(aggregated(Median(), deltas), median, **close)
    for share in (0.0, 0.1, 0.25, 0.4):
        expected = torch.from_numpy(np.asarray(trim_mean(array, share, axis=0)))
        torch.testing.assert_close(aggregated(TrimmedMean(share), deltas), expected, **close)


def test_krum_as_its_definition() -> None:
    deltas = torch.randn(9, 40, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    scores = []
    for row in deltas.numpy():
        squares = np.sort(((deltas.numpy() - row) ** 2).sum(1))
        scores.append(squares[1 : 1 + 9 - 2 - 2].sum())
    chosen = np.argsort(scores)[:3]
    expected = torch.from_numpy(deltas.numpy()[chosen].mean(0))
    torch.testing.assert_close(aggregated(Krum(num_hostile=2, num_selected=3), deltas), expected)


def test_buffers_are_aggregated_alike() -> None:
    buffers = rows([1.0], [2.0], [3.0], [1e9], [6.0])
    given = updates(rows([0.0], [1.0], [2.0], [9.0], [-50.0]), buffers)
    uniform = Uniform()(given, {})[0]
    aggregates = [
        a.aggregate_buffers(given, a.weights(given, uniform)) for a in (Median(), TrimmedMean(0.2), Krum())
    ]
    assert [float(value) for value in aggregates] == pytest.approx([3.0, 11 / 3, 2.0])


def test_the_mask_sees_all_updates() -> None:
    deltas = rows([1.0, 1.0], [1.0, 1.0], [1.0, -1.0], [1.0, -2.0])
    given = updates(deltas)
    uniform = Uniform()(given, {})[0]
    middle, factors = Median().aggregate(given, uniform, AgreementMask(0.9))
    assert factors is not None
    assert (middle.tolist(), factors.values.tolist()) == ([1.0, 0.0], [1.0, 0.0])


def honest_but_one(partition_id: int, content: RecordDict) -> RecordDict:
    """Four nodes near (1, 1), and one that wants the model elsewhere and claims a million examples."""
    w = {"w": np.array([1.0, 1.0]) + 0.1 * partition_id}
    return answer({"w": np.array([1e6, -1e6])}, 1e6) if partition_id == 3 else answer(w)


@pytest.mark.parametrize("aggregation", [Median(), TrimmedMean(0.2), Krum(), Krum(1, 2)], ids=repr)
def test_one_hostile_node_does_not_decide(aggregation: Aggregation) -> None:
    strategy = FedAvg(aggregation=aggregation, weighting=Uniform())
    ((new, _),) = play(strategy, Federation(honest_but_one, 5), record({"w": np.zeros(2)}))
    assert (np.abs(model_in(new)["w"] - 1.2) <= 0.21).all()
    ((mean, _),) = play(FedAvg(), Federation(honest_but_one, 5), record({"w": np.zeros(2)}))
    assert (np.abs(model_in(mean)["w"]) > 1e5).all()


def test_all_selected_is_the_uniform_mean_bit_for_bit() -> None:
    arrays = record({"w": np.zeros(2)})
    krum = FedAvg(aggregation=Krum(1, 5), weighting=Uniform())
    ((first, _),) = play(krum, Federation(honest_but_one, 5), arrays)
    ((second, _),) = play(FedAvg(weighting=Uniform()), Federation(honest_but_one, 5), arrays)
    assert_same(first, second)


def test_too_few_replies_fail_the_round() -> None:
    strategy = FedAvg(aggregation=Krum(), weighting=Uniform(), max_failed_rounds=1)
    with pytest.raises(TooManyFailedRounds, match="4 sound replies, aggregation=Krum needs 5"):
        play(strategy, Federation(honest_but_one, 4), record({"w": np.zeros(2)}))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: TrimmedMean(0.5), r"aggregation.share=0.5 .*\[0, 0.5\)"),
        (lambda: TrimmedMean(float("nan")), "aggregation.share=nan"),
        (lambda: Krum(num_hostile=-1), "aggregation.num_hostile=-1"),
        (lambda: Krum(num_selected=0), "aggregation.num_selected=0"),
        (lambda: FedAvg(aggregation=Median()), "Median .*weighting=ByExamples: set weighting=uniform"),
        (lambda: FedAvg(aggregation=Krum(), weighting=EffectiveRank()), "weighting=EffectiveRank"),
        (
            lambda: FedAvg(aggregation=Median(), weighting=Uniform(), step_size=Extrapolated()),
            "step_size=Extrapolated.*set step_size=constant",
        ),
        (
            lambda: FedAvg(aggregation=Krum(2), weighting=Uniform(), num_nodes=9, nodes_per_round=6),
            "needs 7 nodes in a round, but there are 6",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(build, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=message) as caught:
        build()
    assert "\n" not in str(caught.value)
