"""Several models at once: groups, local training, selective federated averaging."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from torch import Tensor

from helpers.federation import Federation, answer, assert_same, model_in, play, record, round_of, sent_model
from helpers.server_data import Functions
from strategies import (
    Adam,
    AgreementMask,
    Constant,
    Erosion,
    FedAdam,
    FedAvg,
    Grouped,
    KMeans,
    Krum,
    LocalOnly,
    Overlap,
    SelectiveFedAvg,
    TooManyFailedRounds,
    Uniform,
)

GROUPS = json.loads((Path(__file__).parents[1] / "golden" / "grouping.json").read_text())
TARGET = {0: 0.0, 1: 0.2, 2: 10.0, 3: 10.2}


def towards_target(partition_id: int, content: RecordDict) -> RecordDict:
    """Move half of the way to the node's target, with a push that differs from round to round."""
    w = sent_model(content)["w"]
    moved = w + 0.5 * (TARGET[partition_id] - w) + 0.01 * round_of(content)
    return answer({"w": moved}, 10 + partition_id)


def zeros() -> ArrayRecord:
    return record({"w": np.zeros(3)})


def test_one_group_of_all_is_the_inner_strategy_bit_for_bit() -> None:
    def inner() -> FedAdam:
        return FedAdam(server_optimizer=Adam(epsilon=0.1), step_size=Constant(0.3))

    alone = play(inner(), Federation(towards_target, 4), zeros(), range(1, 6))
    grouped = Grouped(inner=inner())
    together = play(grouped, Federation(towards_target, 4), zeros(), range(1, 6))
    for (expected, metrics), (actual, found_metrics) in zip(alone, together, strict=True):
        assert_same(actual, expected)
        assert dict(found_metrics) == dict(metrics)
    assert_same(grouped.models_to_evaluate(zeros())["all"], alone[-1][0])


@pytest.mark.parametrize(
    "strategy",
    [
        FedAvg(),
        LocalOnly(inner=FedAvg()),
        Grouped(inner=FedAvg(), groups={"two": (0, 2), "one": (1,), "none": (3,)}),
    ],
    ids=["one model", "a model for each node", "a model for each group"],
)
def test_nodes_own_tests_are_averaged_by_their_examples_whatever_the_groups(
    strategy: FedAvg | Grouped,
) -> None:
    """(6 * 1 + 1 * 0 + 1 * 0.5) / 8; node 3 has nothing to test on. So methods can be compared."""

    def node(partition_id: int, content: RecordDict) -> RecordDict:
        metrics = {
            "num-examples": (6, 1, 1, 0)[partition_id],
            "accuracy": (1.0, 0.0, 0.5, 0.9)[partition_id],
        }
        return RecordDict({"metrics": MetricRecord(metrics)})

    grid = Federation(node, 4)
    if isinstance(strategy, Grouped):
        play(strategy, Federation(towards_target, 4), zeros())
    replies = grid.send_and_receive(strategy.configure_evaluate(1, zeros(), ConfigRecord(), grid))
    actual = strategy.aggregate_evaluate(1, replies)
    assert actual is not None
    assert dict(actual) == pytest.approx({"accuracy": 0.8125}, rel=1e-15)


@pytest.mark.parametrize(
    "strategy", [FedAvg(), LocalOnly(inner=FedAvg())], ids=["one model", "a model for each node"]
)
def test_training_metrics_are_averaged_by_examples_whatever_the_groups(strategy: FedAvg | Grouped) -> None:
    """(6 * 1 + 2 * 0) / 8."""

    def node(partition_id: int, content: RecordDict) -> RecordDict:
        return answer(sent_model(content), (6, 2)[partition_id], loss=float(partition_id == 0))

    ((_, metrics),) = play(strategy, Federation(node, 2), zeros())
    assert metrics["loss"] == pytest.approx(0.75, rel=1e-15)


def test_groups_do_not_see_each_other() -> None:
    grouped = Grouped(inner=FedAvg(), groups={"low": (0, 1), "high": (2, 3)})
    history = play(grouped, Federation(towards_target, 4), zeros(), range(1, 6))
    models = {name: model_in(arrays)["w"] for name, arrays in grouped.models_to_evaluate(zeros()).items()}
    for name, members in (("low", (0, 1)), ("high", (2, 3))):
        alone = FedAvg(members=members)
        expected = play(alone, Federation(towards_target, 4), zeros(), range(1, 6))[-1][0]
        np.testing.assert_array_equal(models[name], model_in(expected)["w"])
    mean = (models["low"] + models["high"]) / 2
    np.testing.assert_allclose(model_in(history[-1][0])["w"], mean)
    assert history[-1][1]["replies"] == 4


def test_flowers_own_loop_weighs_a_group_by_its_nodes() -> None:
    grouped = Grouped(inner=FedAvg(), groups={"large": (0, 1, 2), "small": (3,)})

    def first_value(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        return MetricRecord({"value": float(model_in(arrays)["w"][0])})

    result = grouped.start(Federation(towards_target, 4), zeros(), 2, evaluate_fn=first_value)
    large, small = (model_in(model)["w"][0] for model in grouped.models_to_evaluate(zeros()).values())
    judged = result.evaluate_metrics_serverapp[2]["value"]
    assert judged == pytest.approx((3 * large + small) / 4, rel=1e-12)
    assert judged != pytest.approx((large + small) / 2, rel=1e-3)


def test_more_replies_than_a_group_has_nodes_are_not_waited_for() -> None:
    """Local training under a federation's min_replies."""
    local = LocalOnly(inner=FedAvg(min_replies=3))
    history = play(local, Federation(towards_target, 4), zeros(), range(1, 5))
    assert [metrics["replies"] for _, metrics in history] == [4] * 4
    assert not any(
        (model_in(model)["w"] == 0).all() for model in local.models_to_evaluate(zeros()).values()
    )


def test_local_only_is_each_node_by_itself() -> None:
    local = LocalOnly(inner=FedAvg())
    play(local, Federation(towards_target, 4), zeros(), range(1, 4))
    for k in range(4):
        w = np.zeros(3)
        for server_round in range(1, 4):
            w = w + 0.5 * (TARGET[k] - w) + 0.01 * server_round
        np.testing.assert_allclose(
            model_in(local.models_to_evaluate(zeros())[f"node{k}"])["w"], w, rtol=1e-12
        )


def test_groups_share_the_nodes_of_a_round() -> None:
    """K = 2 of all four, whoever they are in: those that FedAvg would ask; the others keep their model."""
    one = Federation(towards_target, 4)
    play(FedAvg(nodes_per_round=2, num_nodes=4, seed=3), one, zeros(), range(1, 9))
    local, federation = (
        LocalOnly(inner=FedAvg(nodes_per_round=2, num_nodes=4, seed=3, max_failed_rounds=1)),
        Federation(towards_target, 4),
    )
    history = play(local, federation, zeros(), range(1, 9))
    assert federation.trained() == one.trained()
    assert [metrics["replies"] for _, metrics in history] == [2] * 8


def losing(*lost: int) -> Federation:
    def node(partition_id: int, content: RecordDict) -> RecordDict:
        if partition_id in lost:
            raise RuntimeError("disk full")
        return towards_target(partition_id, content)

    return Federation(node, 4)


def test_a_lost_group_keeps_its_model_and_the_others_go_on() -> None:
    strategy, whole = (LocalOnly(inner=FedAvg(max_failed_rounds=2)) for _ in range(2))
    history = play(strategy, losing(1), zeros(), range(1, 6))
    play(whole, Federation(towards_target, 4), zeros(), range(1, 6))
    assert [(metrics["replies"], metrics["failed"]) for _, metrics in history] == [(3, 1)] * 5
    actual, expected = strategy.models_to_evaluate(zeros()), whole.models_to_evaluate(zeros())
    assert_same(actual.pop("node1"), zeros())
    for name, model in actual.items():
        assert_same(model, expected[name])


def test_start_judges_every_model_and_not_their_mean() -> None:
    seen: dict[int, list[float]] = {}

    def mean_of(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        value = float(model_in(arrays)["w"].mean())
        seen.setdefault(server_round, []).append(value)
        return MetricRecord({"square": value**2})

    inner = FedAvg(federated_evaluation=False)
    result = LocalOnly(inner=inner).start(
        Federation(towards_target, 4), zeros(), num_rounds=2, evaluate_fn=mean_of
    )
    assert [len(values) for values in seen.values()] == [1, 4, 4]
    assert len(set(seen[2])) == 4
    assert result.evaluate_metrics_serverapp[2]["square"] == np.mean(np.square(seen[2]))


def test_a_node_that_comes_after_the_groups_were_made_is_named_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    strategy, federation = LocalOnly(inner=FedAvg()), Federation(towards_target, 4)
    federation.online = [100, 101, 102]
    play(strategy, federation, zeros(), (1,))
    assert not caplog.messages
    federation.online.append(103)
    play(strategy, federation, zeros(), (2, 3))
    assert caplog.messages == ["partitions [3] are in no group and do not train"]
    assert federation.trained() == [0, 1, 2] * 3


def test_a_run_that_ends_before_there_are_groups_is_refused() -> None:
    selective = SelectiveFedAvg(inner=FedAvg(), local_rounds=2)
    selective.set_num_rounds(3)
    with pytest.raises(
        ValueError, match=r"rounds=2 is out of range: expected above strategy.local_rounds=2"
    ):
        selective.set_num_rounds(2)


def test_the_run_ends_when_every_group_is_lost() -> None:
    strategy = Grouped(inner=FedAvg(max_failed_rounds=2), groups={"low": (0, 1), "high": (2, 3)})
    play(strategy, losing(0, 1), zeros(), range(1, 5))
    play(strategy, losing(0, 1, 2, 3), zeros(), (5,))
    restored = Grouped(inner=FedAvg(max_failed_rounds=2))
    restored.load_state_dict(strategy.state_dict())
    for each in (strategy, restored):
        with pytest.raises(TooManyFailedRounds) as caught:
            play(each, losing(0, 1, 2, 3), zeros(), (6,))
        assert str(caught.value) == (
            "2 rounds in a row failed for every model, the first by 0 sound replies, min_replies=1 "
            "(left out in the last round: partition 0 RuntimeError: disk full; partition 1 "
            "RuntimeError: disk full); look at the nodes, or lower min_replies"
        )


def test_a_restored_grouped_strategy_goes_on() -> None:
    grid = Federation(towards_target, 4)
    groups = {"low": (0, 1), "high": (2, 3)}
    first = Grouped(inner=FedAdam(), groups=groups)
    middle = play(first, grid, zeros(), range(1, 4))[-1][0]
    second = Grouped(inner=FedAdam(), groups=groups)
    second.load_state_dict(first.state_dict())
    expected = play(first, grid, middle, range(4, 7))[-1][0]
    assert_same(play(second, grid, middle, range(4, 7))[-1][0], expected)
    for name, model in first.models_to_evaluate(middle).items():
        assert_same(second.models_to_evaluate(middle)[name], model)


@pytest.mark.parametrize(
    ("case", "threshold"),
    [(case, threshold) for case in GROUPS for threshold in GROUPS[case]["groups"]],
)
def test_greedy_groups_equal_the_examples(case: str, threshold: str) -> None:
    selections = torch.tensor([[int(bit) for bit in row] for row in GROUPS[case]["S"]])
    assert Overlap(float(threshold))(selections, seed=0) == GROUPS[case]["groups"][threshold]


def test_kmeans_recovers_planted_groups() -> None:
    rng = np.random.default_rng(0)
    kinds = [0, 1, 2, 2, 1, 0, 1]
    planted = rng.random((3, 400)) < 0.5
    rows = [planted[kind] ^ (rng.random(400) < 0.1) for kind in kinds]
    actual = KMeans(3)(torch.from_numpy(np.stack(rows)), seed=0)
    assert sorted(actual) == [[0, 5], [1, 4, 6], [2, 3]]


def correctness_fn(models: Sequence[ArrayRecord]) -> Tensor:
    """Validation examples at 0 ... 10; a model is right about those within 1 of it."""
    means = torch.tensor([float(arrays["w"].numpy().mean()) for arrays in models])
    return (torch.arange(11.0) - means[:, None]).abs() <= 1


def selective(**changes: object) -> SelectiveFedAvg:
    settings: dict[str, object] = {
        "inner": FedAvg(),
        "local_rounds": 5,
        "server_data": Functions(correctness_fn),
    }
    return SelectiveFedAvg(**{**settings, **changes})  # type: ignore[arg-type]


def test_selective_trains_locally_then_by_group_from_the_initial_model() -> None:
    strategy = selective(grouping=Overlap(0.1))
    history = play(strategy, Federation(towards_target, 4), zeros(), range(1, 9))
    assert [metrics["groups"] for _, metrics in history] == [4] * 5 + [2] * 3
    assert list(strategy.models_to_evaluate(zeros())) == ["group0", "group1"]
    for name, members in (("group0", (0, 1)), ("group1", (2, 3))):
        expected = play(FedAvg(members=members), Federation(towards_target, 4), zeros(), range(6, 9))
        assert_same(strategy.models_to_evaluate(zeros())[name], expected[-1][0])


def test_selective_with_one_group_is_the_inner_strategy() -> None:
    strategy = selective(grouping=Overlap(0.0), local_rounds=2)
    play(strategy, Federation(towards_target, 4), zeros(), range(1, 6))
    expected = play(FedAvg(), Federation(towards_target, 4), zeros(), range(3, 6))[-1][0]
    assert_same(strategy.models_to_evaluate(zeros())["group0"], expected)


def test_selective_without_validation_is_refused() -> None:
    with pytest.raises(ValueError, match="needs examples on the server"):
        play(selective(server_data=None), Federation(towards_target, 4), zeros(), range(1, 8))


def test_values_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match=r"threshold=1\.5"):
        Overlap(1.5)
    with pytest.raises(ValueError, match="num_groups=0"):
        KMeans(0)
    with pytest.raises(ValueError, match="local_rounds=0"):
        selective(local_rounds=0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"inner": FedAvg}, "inner=FedAvg, a class: expected a PseudoGradientStrategy"),
        ({"inner": 5}, "inner=5: expected a PseudoGradientStrategy"),
        ({"groups": {}}, "groups={} is out of range: expected {name: partition ids}"),
        ({"groups": [(0, 1)]}, "groups=[(0, 1)] is out of range"),
        ({"groups": {"a": 3}}, "groups['a']=3 is out of range"),
        ({"groups": {"a": (0,), "b": ()}}, "groups['b']=() is out of range"),
        ({"groups": {"a": ("lake",)}}, "groups['a']=('lake',) is out of range"),
    ],
)
def test_what_is_no_strategy_or_no_groups_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        Grouped(**{"inner": FedAvg(), **settings})


def test_groups_may_come_from_numpy() -> None:
    assert Grouped(inner=FedAvg(), groups={"a": tuple(np.arange(2))}).groups == {"a": (0, 1)}


KRUM = {"aggregation": Krum(), "weighting": Uniform()}


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (
            lambda: LocalOnly(inner=FedAvg(num_nodes=6, **KRUM)),
            "group node0 has 1 node, .*=Krum",
        ),
        (
            lambda: selective(inner=FedAvg(num_nodes=6, **KRUM)),
            "group node0 has 1 node, .*=Krum",
        ),
        (
            lambda: Grouped(inner=FedAvg(**KRUM), groups={"a": (0, 1, 2, 3, 4), "b": (5, 6)}),
            "group b has 2 nodes, .*aggregation=Krum",
        ),
        (lambda: FedAvg(members=(0, 1), **KRUM), "aggregation=Krum .* there are 2"),
        (lambda: LocalOnly(inner=FedAvg(mask=AgreementMask())), "mask=AgreementMask"),
        (
            lambda: Grouped(inner=FedAvg(weighting=Erosion(requester=2)), groups={"a": (0, 1), "b": (2,)}),
            "group a .*weighting.requester=2",
        ),
    ],
)
def test_parts_are_checked_against_the_nodes_of_a_group(build: Callable[[], object], expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        build()


@dataclass(kw_only=True, eq=False)
class ByParity(Grouped):
    """Groups that are known once nodes are."""

    def initial_groups(self, partition_ids: list[int]) -> dict[str, tuple[int, ...]]:
        return {str(p): tuple(k for k in partition_ids if k % 2 == p) for p in (0, 1)}


def test_groups_that_follow_from_the_nodes_are_checked_before_round_1_where_these_are_known() -> None:
    with pytest.raises(ValueError, match=r"group 0 has 3 nodes, .*=Krum"):
        ByParity(inner=FedAvg(num_nodes=6, **KRUM)).check(zeros())
    ByParity(inner=FedAvg(num_nodes=10, **KRUM)).check(zeros())


def test_a_group_that_turns_out_too_small_ends_the_run_in_one_line() -> None:
    with pytest.raises(TooManyFailedRounds, match=r"group 0 has 2 nodes, .*=Krum"):
        play(ByParity(inner=FedAvg(**KRUM)), Federation(towards_target, 4), zeros())


def test_nodes_that_are_grouped_without_having_trained_are_named(caplog: pytest.LogCaptureFixture) -> None:
    strategy = selective(grouping=Overlap(0.1), local_rounds=2)
    play(strategy, losing(1), zeros(), (1, 2))
    caplog.clear()
    play(strategy, Federation(towards_target, 4), zeros(), (3,))
    (line,) = [message for message in caplog.messages if "have not trained" in message]
    assert "[1]" in line


def test_a_mask_may_wait_for_the_groups() -> None:
    selective(inner=FedAvg(mask=AgreementMask(), num_nodes=4)).check(zeros())
