"""What the docstrings promise: which method becomes which, and a few values by hand."""

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from helpers.federation import (
    Federation,
    Model,
    answer,
    assert_same,
    model_in,
    play,
    record,
    round_of,
    sent_model,
)
from strategies import (
    AgreementMask,
    AndMask,
    ByExamples,
    Constant,
    Erosion,
    Extrapolated,
    FedAvg,
    FedAvgM,
    FedExP,
    FedGMA,
    FedProx,
    Grouped,
    Mask,
    Momentum,
    NoMask,
    Scaffold,
    Uniform,
    WeightErosion,
)
from strategies.shared import protocol

NODES, ROUNDS = 4, (1, 2, 3)
SIZES = (10, 1, 5, 4)


def start() -> Model:
    return {"weight": np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3), "bias": np.ones(2, np.float32)}


def trained(partition_id: int, content: RecordDict) -> RecordDict:
    """Move away from the model, and take back what FedProx' term would."""
    rng = np.random.default_rng([partition_id, round_of(content)])
    mu = float(content.config_records[protocol.CONFIG].get(protocol.PROXIMAL_MU, 0.0))  # type: ignore[arg-type]
    model = {
        name: values + (rng.normal(size=values.shape) / (1 + mu)).astype(np.float32)
        for name, values in sent_model(content).items()
    }
    out = answer(model, SIZES[partition_id])
    if protocol.CONTROL in content.array_records:
        out[protocol.CONTROL] = record({name: np.zeros_like(values) for name, values in model.items()})
    return out


@pytest.mark.parametrize(
    ("special", "general"),
    [
        (FedExP(step_size=Extrapolated(float("inf"))), FedAvg(weighting=Uniform())),
        (FedProx(mu=0), FedAvg()),
        (FedAvgM(server_optimizer=Momentum(0)), FedAvg()),
        (FedGMA(mask=AgreementMask(0)), FedAvg()),
        (FedAvg(mask=AndMask(0)), FedAvg()),
        (FedAvg(mask=AndMask(1), nodes_per_round=1), FedAvg(nodes_per_round=1)),
        (Scaffold(num_nodes=NODES), FedAvg(weighting=Uniform())),
        (Grouped(inner=FedAvgM()), FedAvgM()),
        (FedAvg(average_last=5), FedAvg()),
    ],
    ids=lambda strategy: type(strategy).__name__,
)
def test_is_the_other_bit_for_bit(special: FedAvg, general: FedAvg) -> None:
    first = play(special, Federation(trained, NODES), record(start()), ROUNDS)
    second = play(general, Federation(trained, NODES), record(start()), ROUNDS)
    for (model_a, metrics_a), (model_b, metrics_b) in zip(first, second, strict=True):
        assert_same(model_a, model_b)
        assert metrics_a["step-size"] == metrics_b["step-size"]


def test_weight_erosion_without_a_penalty_is_uniform_fedavg() -> None:
    special = WeightErosion(weighting=Erosion(requester=0, distance_penalty=0))
    ((first, _),) = play(special, Federation(trained, NODES), record(start()))
    ((second, _),) = play(FedAvg(weighting=Uniform()), Federation(trained, NODES), record(start()))
    assert_same(first, second)


@pytest.mark.parametrize(
    "other",
    [FedProx(mu=1), FedAvgM(), FedExP(), FedGMA(), FedAvg(step_size=Constant(2))],
    ids=lambda strategy: type(strategy).__name__,
)
def test_is_not_the_other_elsewhere(other: FedAvg) -> None:
    """Otherwise the comparisons above would hold for anything."""
    (*_, (first, _)) = play(other, Federation(trained, NODES), record(start()), ROUNDS)
    (*_, (second, _)) = play(FedAvg(), Federation(trained, NODES), record(start()), ROUNDS)
    assert first["weight"].data != second["weight"].data


def test_fedavg_is_the_weighted_mean_of_the_nodes_models() -> None:
    received: dict[int, Model] = {}

    def noted(partition_id: int, content: RecordDict) -> RecordDict:
        out = trained(partition_id, content)
        received[partition_id] = sent_model(out)
        return out

    ((new, _),) = play(FedAvg(), Federation(noted, NODES), record(start()))
    for name, values in model_in(new).items():
        mean = sum(SIZES[k] / sum(SIZES) * received[k][name].astype(np.float64) for k in range(NODES))
        np.testing.assert_allclose(values, mean, rtol=0, atol=4 * np.finfo(np.float32).eps * 3)


def nodes_at(*points: list[float]) -> Federation:
    """Return a federation whose nodes return the given models, from any start."""

    def node(partition_id: int, content: RecordDict) -> RecordDict:
        return answer({"w": np.array(points[partition_id])}, num_examples=partition_id + 1)

    return Federation(node, len(points))


def test_fedexp_by_hand() -> None:
    """From w = 0 nodes at (3, 0) and (0, 3): ||Delta||^2 = 9 each, ||D||^2 = 4.5."""
    grid, arrays = nodes_at([3.0, 0.0], [0.0, 3.0]), record({"w": np.zeros(2)})
    ((new, metrics),) = play(FedExP(step_size=Extrapolated(0.0)), grid, arrays)
    assert metrics["step-size"] == pytest.approx(18 / (2 * 2 * 4.5))  # 1
    ((new, metrics),) = play(
        FedExP(step_size=Extrapolated(0.0)), nodes_at([3.0], [-1.0]), record({"w": np.zeros(1)})
    )
    assert metrics["step-size"] == pytest.approx(10 / (2 * 2 * 1))  # 2.5
    np.testing.assert_allclose(model_in(new)["w"], [2.5])


@pytest.mark.parametrize(
    ("step_size", "eta"),
    [
        (Extrapolated(1.0), 10 / (2 * 2 * 2)),
        (Extrapolated(3.0), 1.0),  # 10 / 16, clamped
        (Extrapolated(3.0, clamp=False), 10 / 16),
        (Extrapolated(8.0, epsilon_decay=0.25), 1.0),  # epsilon 2 in round 1: 10 / 12, clamped
        (Extrapolated(8.0, epsilon_decay=0.25, clamp=False), 10 / 12),
        (Extrapolated(0.5, epsilon_decay=4.0), 1.0),  # it grows to 2 in round 1: 10 / 12, clamped
        (Extrapolated(0.25, epsilon_decay=4.0), 10 / 8),
    ],
)
def test_fedexp_options_by_hand(step_size: Extrapolated, eta: float) -> None:
    ((_, metrics),) = play(FedExP(step_size=step_size), nodes_at([3.0], [-1.0]), record({"w": np.zeros(1)}))
    assert metrics["step-size"] == pytest.approx(eta)


def test_fedexp_counts_examples_when_told_to() -> None:
    """With n = (1, 2): sum alpha ||Delta||^2 = (9 + 2 * 1) / 3, D = (3 - 2) / 3 from node (3) and (-1)."""
    strategy = FedExP(weighting=ByExamples(), step_size=Extrapolated(0.0))
    ((_, metrics),) = play(strategy, nodes_at([3.0], [-1.0]), record({"w": np.zeros(1)}))
    assert metrics["step-size"] == pytest.approx((11 / 3) / (2 * (1 / 9)))


def test_fedavgm_by_hand() -> None:
    """A node that always moves by +1: m = 1, 1.5, 1.75 with beta 0.5, and w the sum of them."""

    def node(partition_id: int, content: RecordDict) -> RecordDict:
        return answer({"w": sent_model(content)["w"] + 1})

    strategy = FedAvgM(num_nodes=1, server_optimizer=Momentum(0.5), step_size=Constant(2.0))
    history = play(strategy, Federation(node, 1), record({"w": np.zeros(1)}), ROUNDS)
    assert [float(model_in(model)["w"][0]) for model, _ in history] == [2.0, 5.0, 8.5]


# ---- which model is judged -----------------------------------------------------------------------


def judged_after_each_round(average_last: int, mask: Mask) -> tuple[list[float], list[float]]:
    """Return iterates w_0, w_1, ... and the models judged after them."""

    def node(partition_id: int, content: RecordDict) -> RecordDict:
        return answer({"w": sent_model(content)["w"] * 2})

    strategy, arrays = FedAvg(average_last=average_last, mask=mask), record({"w": np.ones(1)})
    iterates, judged = [1.0], [value_in(strategy.models_to_evaluate(arrays))]
    for server_round in (1, 2, 3):
        ((arrays, _),) = play(strategy, Federation(node, 2), arrays, (server_round,))
        iterates.append(float(model_in(arrays)["w"][0]))
        judged.append(value_in(strategy.models_to_evaluate(arrays)))
    return iterates, judged


def value_in(models: dict[str, ArrayRecord]) -> float:
    (model,) = models.values()
    return float(model_in(model)["w"][0])


# Nodes that agree leave nothing to mask, but a mask writes over vectors of the round before.
masks = pytest.mark.parametrize("mask", [NoMask(), AgreementMask(0.5)], ids=["none", "agreement"])


@masks
def test_training_goes_on_from_the_last_iterate(mask: Mask) -> None:
    for n in (1, 2, 3):
        assert judged_after_each_round(n, mask)[0] == [1.0, 2.0, 4.0, 8.0]


@masks
def test_judged_is_the_mean_of_the_last_iterates_and_of_fewer_while_fewer_exist(mask: Mask) -> None:
    assert judged_after_each_round(1, mask)[1] == [1.0, 2.0, 4.0, 8.0]
    assert judged_after_each_round(2, mask)[1] == [1.0, 1.5, 3.0, 6.0]
    assert judged_after_each_round(3, mask)[1] == pytest.approx([1.0, 1.5, 7 / 3, 14 / 3])


def test_judged_models_are_named_for_what_they_are() -> None:
    arrays = record(start())
    assert list(FedAvg().models_to_evaluate(arrays)) == ["global"]
    assert list(FedExP().models_to_evaluate(arrays)) == ["average"]


def test_nodes_and_server_judge_the_same_model() -> None:
    """Flower's own loop: evaluate_fn and the nodes' evaluation both get the average, training the last."""
    on_nodes: list[float] = []
    on_server: list[float] = []

    def node(partition_id: int, content: RecordDict) -> RecordDict:
        w = sent_model(content)["w"]
        if content.config_records[protocol.CONFIG].get("purpose") == "test":
            on_nodes.append(float(w[0]))
            return RecordDict({"metrics": MetricRecord({"num-examples": 1, "loss": 0.0})})
        return answer({"w": w * 2})

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        on_server.append(float(model_in(arrays)["w"][0]))
        return MetricRecord({"loss": 0.0})

    result = FedAvg(average_last=2, num_nodes=1).start(
        Federation(node, 1),
        record({"w": np.ones(1)}),
        num_rounds=3,
        evaluate_config=ConfigRecord({"purpose": "test"}),
        evaluate_fn=evaluate,
    )
    assert on_nodes == [1.5, 3.0, 6.0]
    assert on_server == [1.0, 1.5, 3.0, 6.0]
    assert model_in(result.arrays)["w"] == [8.0]


def test_federated_evaluation_is_weighted_by_test_examples() -> None:
    def node(partition_id: int, content: RecordDict) -> RecordDict:
        metrics = {"num-examples": (3, 1, 0)[partition_id], "accuracy": (1.0, 0.0, 0.9)[partition_id]}
        return RecordDict({"metrics": MetricRecord(metrics)})

    strategy, grid, arrays = FedAvg(), Federation(node, 3), record(start())
    replies = grid.send_and_receive(strategy.configure_evaluate(1, arrays, ConfigRecord(), grid))
    assert strategy.aggregate_evaluate(1, replies) == MetricRecord({"accuracy": 0.75})
    assert (
        list(FedAvg(federated_evaluation=False).configure_evaluate(1, arrays, ConfigRecord(), grid)) == []
    )


# ---- values out of range -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Constant(0), "step_size.eta=0"),
        (lambda: Constant(float("nan")), "step_size.eta=nan"),
        (lambda: Constant(float("inf")), "step_size.eta=inf"),
        (lambda: Extrapolated(-1e-9), "step_size.epsilon="),
        (lambda: Extrapolated(float("nan")), "step_size.epsilon=nan"),
        (lambda: Extrapolated(epsilon_decay=0), "step_size.epsilon_decay=0"),
        (lambda: Momentum(1), "server_optimizer.beta=1"),
        (lambda: Momentum(-0.1), "server_optimizer.beta="),
        (lambda: AndMask(1.1), "mask.tau=1.1"),
        (lambda: FedProx(mu=-1), "strategy.mu=-1"),
        (lambda: FedAvg(nodes_per_round=0), "nodes_per_round=0"),
        (lambda: FedAvg(nodes_per_round=2.5), "nodes_per_round=2.5"),  # type: ignore[arg-type]
        (lambda: FedAvg(nodes_per_round=3, num_nodes=2), "nodes_per_round=3.*num_nodes=2"),
        (lambda: FedAvg(min_replies=3, nodes_per_round=2, num_nodes=4), "min_replies=3.*at most 2"),
        (lambda: FedAvg(min_replies=3, nodes_per_round=2), "min_replies=3.*at most 2"),
        (lambda: FedAvg(node_timeout=-1), "node_timeout=-1"),
        (lambda: FedAvg(average_last=0), "average_last=0"),
        (lambda: FedAvg(max_failed_rounds=0), "max_failed_rounds=0"),
        (lambda: FedGMA(nodes_per_round=1, num_nodes=2), "AgreementMask.*nodes_per_round=1"),
    ],
)
def test_values_out_of_range_are_refused_in_one_line(build, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=message) as caught:
        build()
    assert "\n" not in str(caught.value)
