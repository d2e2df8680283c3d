"""Weight Erosion: weights by vectors computed by independent code, and whom the strategy asks."""

from pathlib import Path

import numpy as np
import pytest
import torch
from flwr.app import ConfigRecord, RecordDict

from helpers.federation import Federation, answer, play, record, round_of, sent_model
from strategies import Erosion, FedAvg, Grouped, LocalOnly, Uniform, WeightErosion, WeightErosionForAll

VECTORS = np.load(Path(__file__).parents[2] / "golden" / "weight_erosion.npz")
PENALTIES = {
    "distance_penalty": float(VECTORS["distance_penalty"]),
    "size_penalty": float(VECTORS["size_penalty"]),
    "samples_per_round": int(VECTORS["samples_per_round"]),
}


def displaced(partition_id: int, content: RecordDict) -> RecordDict:
    moved = VECTORS["displacements"][round_of(content) - 1, partition_id]
    return answer({"w": sent_model(content)["w"] + moved}, int(VECTORS["num_examples"][partition_id]))


def test_six_rounds_equal_the_vectors() -> None:
    strategy = WeightErosion(weighting=Erosion(requester=0, **PENALTIES))
    grid = Federation(displaced, 5)
    history = play(strategy, grid, record({"w": VECTORS["w0"]}), rounds=range(1, 7))
    for now, (arrays, metrics) in enumerate(history):
        np.testing.assert_allclose(arrays["w"].numpy(), VECTORS["w"][now], rtol=1e-12, atol=1e-13)
        alphas = [metrics[f"weight-{k}"] for k in range(5)]
        np.testing.assert_allclose(alphas, VECTORS["alphas"][now], rtol=1e-12, atol=1e-13)


def test_weights_never_rise_and_the_requester_keeps_its_own() -> None:
    alphas = VECTORS["alphas"]
    strategy = WeightErosion(weighting=Erosion(requester=0, **PENALTIES))
    history = play(strategy, Federation(displaced, 5), record({"w": VECTORS["w0"]}), rounds=range(1, 7))
    weights = np.array([[metrics[f"weight-{k}"] for k in range(5)] for _, metrics in history])
    assert (np.diff(weights, axis=0) <= 0).all()
    assert (weights[:, 0] == 1).all()
    assert weights.shape == alphas.shape


def test_how_often_examples_were_drawn_has_three_readings() -> None:
    """320 samples are 10 batches of 32; an epoch draws all of them in every round."""

    def still(partition_id: int, content: RecordDict) -> RecordDict:
        return answer({"w": sent_model(content)["w"] + np.array([1.0, float(partition_id)])}, 320)

    weights = {}
    for reading in ({}, {"batch_size": 32}, {"samples_per_round": None}):
        erosion = Erosion(requester=0, distance_penalty=0.01, size_penalty=2.0, **reading)
        strategy = WeightErosion(weighting=erosion)
        history = play(strategy, Federation(still, 2), record({"w": np.zeros(2)}), rounds=range(1, 4))
        weights[next(iter(reading), "text")] = [metrics["weight-1"] for _, metrics in history]
    # d = 1 in every round; the size term is 0, 0, 0 in samples, 0, 3, 6 in batches, and 0, 1, 2 in epochs.
    assert weights["text"] == pytest.approx([0.99, 0.98, 0.97])
    assert weights["batch_size"] == pytest.approx([0.99, 0.99 - 0.07, 0.99 - 0.07 - 0.13])
    assert weights["samples_per_round"] == pytest.approx([0.99, 0.99 - 0.03, 0.99 - 0.03 - 0.05])


def apart(partition_id: int, content: RecordDict) -> RecordDict:
    """Move a and b by 1 each; node 1 moves b by 3, and node 2 neither a nor b as node 0 does."""
    model, b, a = sent_model(content), (1.0, 3.0, -1.0)[partition_id], (1.0, 1.0, -1.0)[partition_id]
    return answer({"a": model["a"] + a, "b": model["b"] + b}, 10)


def test_each_layer_erodes_by_its_own_distance() -> None:
    """p_d = 0.25; node 1 has d = 0 in a and 2 in b, node 2 has d = 2 in both.

    So alpha_1 = (1, 0.5), alpha_2 = (0.5, 0.5), and the mean moves a by (1 + 1 - 0.5) / 2.5 and b by
    (1 + 1.5 - 0.5) / 2. In the next round alpha_1 = (1, 0), and node 2's are 0: it is not asked again.
    """
    erosion = Erosion(requester=0, distance_penalty=0.25, size_penalty=0, by_layer=True)
    grid = Federation(apart, 3)
    strategy = WeightErosion(weighting=erosion)
    start = record({"a": np.zeros(2), "b": np.zeros(1)})
    (first, metrics), (second, later) = play(strategy, grid, start, rounds=(1, 2))
    assert first["a"].numpy() == pytest.approx([0.6, 0.6])
    assert first["b"].numpy() == pytest.approx([1.0])
    assert [metrics[f"weight-{k}"] for k in range(3)] == pytest.approx([1, 0.75, 0.5])
    assert second["a"].numpy() == pytest.approx([1.6, 1.6])
    assert second["b"].numpy() == pytest.approx([2.0])
    assert [later[f"weight-{k}"] for k in range(3)] == pytest.approx([1, 0.5, 0])
    grid.trained()
    play(strategy, grid, second, rounds=(3,))
    assert grid.trained() == [0, 1]


def test_a_model_of_one_layer_erodes_alike_by_layer() -> None:
    start = record({"w": VECTORS["w0"]})
    by_layer = WeightErosion(weighting=Erosion(requester=0, by_layer=True, **PENALTIES))
    history = play(by_layer, Federation(displaced, 5), start, rounds=range(1, 7))
    for now, (arrays, _) in enumerate(history):
        np.testing.assert_allclose(arrays["w"].numpy(), VECTORS["w"][now], rtol=1e-12, atol=1e-13)


def test_nodes_without_weight_are_not_asked_again() -> None:
    def opposed(partition_id: int, content: RecordDict) -> RecordDict:
        direction = -1.0 if partition_id == 2 else 1.0
        return answer({"w": sent_model(content)["w"] + direction}, 10)

    strategy = WeightErosion(weighting=Erosion(requester=1, distance_penalty=0.5))
    grid = Federation(opposed, 4)
    play(strategy, grid, record({"w": np.zeros(3)}), rounds=(1,))
    assert grid.trained() == [0, 1, 2, 3]
    play(strategy, grid, record({"w": np.zeros(3)}), rounds=(2,))  # d = 2, 1 - 0.5 * 2 = 0
    assert grid.trained() == [0, 1, 3]


def test_the_requester_trains_in_every_round() -> None:
    def moved(partition_id: int, content: RecordDict) -> RecordDict:
        return answer({"w": sent_model(content)["w"] + 1.0}, 10)

    strategy = WeightErosion(weighting=Erosion(requester=3), nodes_per_round=2, num_nodes=6)
    grid = Federation(moved, 6)
    rounds_asked = []
    for server_round in range(1, 9):
        play(strategy, grid, record({"w": np.zeros(3)}), rounds=(server_round,))
        rounds_asked.append(grid.trained())
    assert all(len(nodes) == 2 and 3 in nodes for nodes in rounds_asked)
    assert len({tuple(nodes) for nodes in rounds_asked}) > 1


def test_without_the_requesters_reply_the_model_stays() -> None:
    def silent_requester(partition_id: int, content: RecordDict) -> RecordDict:
        if partition_id == 0:
            raise RuntimeError("away")
        return answer({"w": sent_model(content)["w"] + 1.0}, 10)

    strategy = WeightErosion(weighting=Erosion(requester=0))
    ((arrays, metrics),) = play(strategy, Federation(silent_requester, 3), record({"w": np.zeros(2)}))
    assert arrays["w"].numpy().tolist() == [0, 0]
    assert metrics["failed"] == 1


def test_every_node_has_a_model_of_its_own() -> None:
    strategy = WeightErosionForAll(inner=WeightErosion(weighting=Erosion(requester=0, **PENALTIES)))
    play(strategy, Federation(displaced, 5), record({"w": VECTORS["w0"]}), rounds=range(1, 7))
    models = strategy.models_to_evaluate(record({"w": VECTORS["w0"]}))
    assert list(models) == [f"node{k}" for k in range(5)]
    np.testing.assert_allclose(models["node0"]["w"].numpy(), VECTORS["w"][5], rtol=1e-12, atol=1e-13)
    alone = WeightErosion(weighting=Erosion(requester=2, **PENALTIES))
    history = play(alone, Federation(displaced, 5), record({"w": VECTORS["w0"]}), rounds=range(1, 7))
    assert models["node2"]["w"].data == history[-1][0]["w"].data


def test_every_node_evaluates_the_model_of_its_own() -> None:
    def node(partition_id: int, content: RecordDict) -> RecordDict:
        w = sent_model(content)["w"]
        return answer({"w": w + partition_id}, 10, mine=float(w[0] == 10 * partition_id))

    strategy = WeightErosionForAll(inner=WeightErosion(weighting=Erosion(requester=0)))
    grid, start = Federation(node, 3), record({"w": np.zeros(2)})
    play(strategy, grid, start)
    strategy._models = {f"node{k}": record({"w": np.full(2, 10.0 * k)}) for k in range(3)}
    replies = grid.send_and_receive(strategy.configure_evaluate(1, start, ConfigRecord(), grid))
    actual = strategy.aggregate_evaluate(1, replies)
    assert actual is not None
    assert (len(replies), actual["mine"]) == (3, 1.0)


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="weighting=erosion needs a requester"):
        Erosion()
    with pytest.raises(ValueError, match="distance_penalty=-1"):
        Erosion(requester=0, distance_penalty=-1)
    with pytest.raises(ValueError, match="strategy=WeightErosion needs weighting=Erosion, not Uniform"):
        WeightErosion(weighting=Uniform())
    assert isinstance(FedAvg(weighting=Erosion(requester=0)).weighting, Erosion)


def test_identical_nodes_do_not_erode() -> None:
    def same(partition_id: int, content: RecordDict) -> RecordDict:
        return answer({"w": sent_model(content)["w"] + 0.5}, 10)

    strategy = WeightErosion(weighting=Erosion(requester=0, distance_penalty=1.0))
    history = play(strategy, Federation(same, 3), record({"w": np.zeros(4)}), rounds=(1, 2, 3))
    assert [history[-1][1][f"weight-{k}"] for k in range(3)] == [1, 1, 1]
    assert torch.equal(torch.from_numpy(history[-1][0]["w"].numpy()), torch.full((4,), 1.5).double())


def test_of_no_nodes_none_is_asked() -> None:
    assert WeightErosion(weighting=Erosion(requester=2)).choose([], 1) == []


def test_every_node_needs_a_strategy_of_one_requester() -> None:
    with pytest.raises(
        ValueError, match="needs inner=weight_erosion, not FedAvg with weighting=ByExamples"
    ):
        WeightErosionForAll(inner=FedAvg())  # type: ignore[arg-type]


def test_each_requester_is_one_for_all_models_and_for_nothing_else() -> None:
    each = WeightErosionForAll(inner=WeightErosion(weighting=Erosion(requester="each", **PENALTIES)))
    named = WeightErosionForAll(inner=WeightErosion(weighting=Erosion(requester=0, **PENALTIES)))
    start = record({"w": VECTORS["w0"]})
    for strategy in (each, named):
        strategy.check(start)
        play(strategy, Federation(displaced, 5), start, rounds=range(1, 4))
    for name, model in each.models_to_evaluate(start).items():
        assert model["w"].data == named.models_to_evaluate(start)[name]["w"].data
    for alone in (FedAvg, WeightErosion):
        with pytest.raises(ValueError, match=r"weighting.requester=each"):
            alone(weighting=Erosion(requester="each")).check(start)
    with pytest.raises(ValueError, match=r"weighting.requester=every"):
        Erosion(requester="every")  # type: ignore[arg-type]


def test_of_all_models_the_weights_are_shown_as_means_over_the_requesters() -> None:
    """Each alpha of the single requesters' runs, averaged; whatever their numbers of examples."""
    start, alphas = record({"w": VECTORS["w0"]}), []
    for requester in range(5):
        alone = WeightErosion(weighting=Erosion(requester=requester, **PENALTIES))
        metrics = play(alone, Federation(displaced, 5), start, rounds=range(1, 4))[-1][1]
        alphas.append([metrics[f"weight-{k}"] for k in range(5)])
    strategy = WeightErosionForAll(inner=WeightErosion(weighting=Erosion(requester="each", **PENALTIES)))
    metrics = play(strategy, Federation(displaced, 5), start, rounds=range(1, 4))[-1][1]
    assert not [key for key in metrics if key.startswith("weight-")]
    means = [metrics[f"mean-weight-{k}"] for k in range(5)]
    assert means == pytest.approx(np.mean(alphas, axis=0), rel=1e-12)


def test_a_model_of_one_node_has_an_owner() -> None:
    start = record({"w": VECTORS["w0"]})
    for strategy, expected in (
        (WeightErosionForAll(inner=WeightErosion()), [0, 1, 2, 3, 4]),
        (LocalOnly(inner=FedAvg()), [0, 1, 2, 3, 4]),
        (Grouped(inner=FedAvg(), groups={"a": (0, 1), "b": (2,)}), [None, 2]),
        (FedAvg(), [None]),
    ):
        play(strategy, Federation(displaced, 5), start)
        assert [strategy.owner_of(name) for name in strategy.models_to_evaluate(start)] == expected
