"""FedBuff and FedAsync: steps by hand, beside a plain loop of events, reductions, failures, and resuming."""

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from flwr.app import RecordDict

from baselines.engine.checkpoint import pack_value, unpack_value
from helpers.federation import Federation, answer, assert_same, model_in, play, record, round_of, sent_model
from strategies import (
    Adam,
    AgreementMask,
    CentralPrivacy,
    ConstantStaleness,
    FedAsync,
    FedAvg,
    FedBuff,
    Grouped,
    LognormalClock,
    PolynomialStaleness,
    TooManyFailedRounds,
    Uniform,
    VirtualClock,
)
from strategies.core.asynchronous import AsynchronousStrategy
from strategies.core.clock import Profile
from strategies.shared.seeding import Purpose

NODES, AT_WORK, BUFFER = 7, 4, 3
START = record({"w": np.zeros(3)})
LOGNORMAL = LognormalClock(bytes_per_second=None)


@dataclass(frozen=True, kw_only=True)
class Given(VirtualClock):
    """Seconds of a step, by partition."""

    seconds: tuple[float, ...]

    def profile(self, seed: int, partition_id: int) -> Profile:
        return Profile(self.seconds[partition_id], math.inf)


def adding(partition_id: int, content: RecordDict) -> RecordDict:
    """Take one step, of 1, 2 or 4."""
    return answer({"w": sent_model(content)["w"] + 2.0**partition_id}, **{"local-steps": 1})


def stepped(partition_id: int, server_round: int, model: np.ndarray) -> tuple[np.ndarray, int]:
    """Return where a node goes from a model, and in how many steps."""
    rng = np.random.default_rng([partition_id, server_round])
    return 0.5 * model + rng.normal(size=model.shape), int(rng.integers(1, 9))


def stepping(partition_id: int, content: RecordDict) -> RecordDict:
    model, steps = stepped(partition_id, round_of(content), sent_model(content)["w"])
    return answer({"w": model}, partition_id + 1, **{"local-steps": steps})


def history(strategy: AsynchronousStrategy, rounds: int) -> tuple[list[float], list[float]]:
    """Return the model, and the virtual seconds, of each round of three nodes that add to it."""
    played = play(strategy, Federation(adding, 3), record({"w": np.zeros(1)}), range(1, rounds + 1))
    return [model_in(arrays)["w"].item() for arrays, _ in played], [
        metrics["virtual-seconds"] for _, metrics in played
    ]


def test_fedbuff_by_hand() -> None:
    """Nodes take 1, 2 and 5 s: in round 3 the third's first update arrives, two steps old."""
    models, seconds = history(FedBuff(buffer_size=2, clock=Given(seconds=(1, 2, 5))), 4)
    third = 3 + (1 + 4 / 3**0.5) / 2
    assert models == pytest.approx([1.5, 3, third, third + (1 + 2 / 2**0.5) / 2], rel=1e-12)
    assert seconds == [2, 2, 1, 1]


def test_fedasync_by_hand() -> None:
    """Models of 1 at 1 s, 1.5 and 2 at 2 s, 2 at 3 s, which are 0, 0, 2 and 1 steps old."""
    strategy = FedAsync(alpha=0.5, staleness=PolynomialStaleness(a=1), clock=Given(seconds=(1, 2, 5)))
    models, seconds = history(strategy, 4)
    assert models == pytest.approx([0.5, 1, 5 / 6 + 2 / 6, 0.75 * 7 / 6 + 0.25 * 2], rel=1e-12)
    assert seconds == [1, 1, 0, 1]


def loop(rounds: int, size: int, step: Callable[..., np.ndarray]) -> tuple[np.ndarray, float]:
    """Return the last model and time of events in a heap, without any of our code but the clock's speeds."""
    model, now, heap = np.zeros(3), 0.0, list[tuple[float, int, int, np.ndarray, np.ndarray]]()
    for t in range(1, rounds + 1):
        idle = [k for k in range(NODES) if k not in {event[1] for event in heap}]
        rng = np.random.default_rng([0, t, 0, Purpose.SAMPLE_NODES])
        for k in sorted(rng.choice(idle, AT_WORK - len(heap), replace=False).tolist()):
            trained, steps = stepped(k, t, model)
            arrival = now + steps * LOGNORMAL.profile(0, k).seconds_per_step
            heapq.heappush(heap, (arrival, k, t, model, trained))
        events = [heapq.heappop(heap) for _ in range(size)]
        now = events[-1][0]
        model = step(model, [(t - begun, sent, trained) for _, _, begun, sent, trained in events])
    return model, now


def buffered(model: np.ndarray, events: list[tuple[int, np.ndarray, np.ndarray]]) -> np.ndarray:
    moves = [(trained - sent) / (1 + tau) ** 0.5 for tau, sent, trained in events]
    return np.asarray(model + sum(moves) / len(moves))


def mixed(model: np.ndarray, events: list[tuple[int, np.ndarray, np.ndarray]]) -> np.ndarray:
    ((tau, _, trained),) = events
    share = 0.6 / (1 + tau) ** 0.5
    return np.asarray((1 - share) * model + share * trained)


SOME: dict[str, Any] = {"nodes_per_round": AT_WORK, "num_nodes": NODES, "clock": LOGNORMAL}


@pytest.mark.parametrize(
    ("make", "size", "step"),
    [
        (lambda: FedBuff(**SOME, buffer_size=BUFFER), BUFFER, buffered),
        (lambda: FedAsync(**SOME), 1, mixed),
    ],
    ids=["fedbuff", "fedasync"],
)
class TestBoth:
    def test_agrees_with_a_plain_loop_of_events(
        self, make: Callable[[], AsynchronousStrategy], size: int, step: Callable[..., np.ndarray]
    ) -> None:
        played = play(make(), Federation(stepping, NODES), START, range(1, 21))
        model, now = loop(20, size, step)
        np.testing.assert_allclose(model_in(played[-1][0])["w"], model, rtol=1e-10)
        assert sum(float(metrics["virtual-seconds"]) for _, metrics in played) == pytest.approx(now)
        assert max(float(metrics["staleness"]) for _, metrics in played) > 0

    def test_the_order_of_replies_changes_no_byte(
        self, make: Callable[[], AsynchronousStrategy], size: int, step: Callable[..., np.ndarray]
    ) -> None:
        one = play(make(), Federation(stepping, NODES), START, range(1, 9))[-1][0]
        other = play(make(), Federation(stepping, NODES), START, range(1, 9), lambda them: them[::-1])[-1][
            0
        ]
        assert_same(one, other)

    def test_resumed_is_uninterrupted(
        self, make: Callable[[], AsynchronousStrategy], size: int, step: Callable[..., np.ndarray]
    ) -> None:
        whole = play(make(), Federation(stepping, NODES), START, range(1, 13))
        before, after = make(), make()
        middle = play(before, Federation(stepping, NODES), START, range(1, 6))[-1][0]
        after.load_state_dict(unpack_value(pack_value(before.state_dict())))
        rest = play(after, Federation(stepping, NODES), middle, range(6, 13))
        for (arrays, metrics), (same, others) in zip(rest, whole[5:], strict=True):
            assert_same(arrays, same)
            assert metrics["virtual-seconds"] == others["virtual-seconds"]


@pytest.mark.parametrize("at_work", [None, 4])
@pytest.mark.parametrize(
    "parts", [{}, {"mask": AgreementMask(0.4), "server_optimizer": Adam()}], ids=["plain", "parts"]
)
def test_a_buffer_for_all_at_work_is_fedavg_to_the_byte(at_work: int | None, parts: dict[str, Any]) -> None:
    some = {"nodes_per_round": at_work, "num_nodes": NODES, **parts}
    buffer = FedBuff(**some, buffer_size=at_work or NODES, clock=LOGNORMAL)
    one = play(buffer, Federation(stepping, NODES), START, range(1, 6))[-1][0]
    other = play(FedAvg(**some, weighting=Uniform()), Federation(stepping, NODES), START, range(1, 6))[-1][
        0
    ]
    assert_same(one, other)


def test_alone_with_alpha_1_fedasync_is_one_node_after_another() -> None:
    strategy = FedAsync(**SOME | {"nodes_per_round": 1}, alpha=1, staleness=ConstantStaleness())
    grid, model = Federation(stepping, NODES), np.zeros(3)
    for t, (arrays, _) in enumerate(play(strategy, grid, START, range(1, 6)), start=1):
        (k,) = np.random.default_rng([0, t, 0, Purpose.SAMPLE_NODES]).choice(range(NODES), 1, replace=False)
        model, _ = stepped(int(k), t, model)
        np.testing.assert_allclose(model_in(arrays)["w"], model, rtol=1e-12)


def test_never_are_more_at_work_and_none_twice() -> None:
    strategy, grid, model = FedBuff(**SOME, buffer_size=2), Federation(stepping, NODES), START
    started = []
    for t in range(1, 9):
        waiting = set(strategy._waiting)
        ((model, metrics),) = play(strategy, grid, model, (t,))
        started.append(grid.trained())
        assert not waiting & set(started[-1])
        assert len(waiting) + len(started[-1]) == AT_WORK
        assert metrics["replies"] == 2
    assert list(map(len, started)) == [4, *7 * [2]]


def test_buffers_of_a_model_are_mixed_as_it_is() -> None:
    start = record({"w": np.zeros(1), "running_mean": np.full(1, 8.0)})

    def node(partition_id: int, content: RecordDict) -> RecordDict:
        return answer({"w": np.ones(1), "running_mean": np.full(1, 4.0)}, **{"local-steps": 1})

    mixing = FedAsync(alpha=0.25, clock=Given(seconds=(1, 2)))
    ((arrays, _),) = play(mixing, Federation(node, 2), start)
    assert model_in(arrays)["running_mean"].item() == 7
    averaging = FedBuff(buffer_size=2, clock=Given(seconds=(1, 2)))
    ((arrays, _),) = play(averaging, Federation(node, 2), start)
    assert model_in(arrays)["running_mean"].item() == 4


def failing(partition_id: int, content: RecordDict) -> RecordDict:
    if partition_id == 1:
        raise RuntimeError("no memory")
    return adding(partition_id, content)


def test_a_node_that_fails_keeps_nobody_from_going_on() -> None:
    strategy = FedBuff(buffer_size=2, clock=Given(seconds=(1, 2, 5)), staleness=ConstantStaleness())
    played = play(strategy, Federation(failing, 3), record({"w": np.zeros(1)}), range(1, 4))
    assert [metrics["failed"] for _, metrics in played] == [1, 1, 1]
    assert model_in(played[-1][0])["w"].item() == pytest.approx(3 * 2.5)


def test_a_buffer_that_is_never_full_ends_the_run() -> None:
    strategy = FedBuff(buffer_size=3, clock=Given(seconds=(1, 2, 5)), max_failed_rounds=2)
    with pytest.raises(
        TooManyFailedRounds, match=r"2 updates wait for a step, strategy\.buffer_size=3.*no memory"
    ):
        play(strategy, Federation(failing, 3), record({"w": np.zeros(1)}), range(1, 4))


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"buffer_size": 0}, r"strategy\.buffer_size=0 is out of range"),
        (
            {"buffer_size": 4, "nodes_per_round": 3},
            r"strategy\.buffer_size=4 .*: expected at most nodes_per_round=3",
        ),
        ({"min_replies": 3}, r"min_replies=3 .* at most strategy\.buffer_size=2"),
        (
            {"clock": replace(LOGNORMAL, deadline=3.0)},
            r"clock\.deadline=3\.0 .*whose server waits for no round",
        ),
        (
            {"clock": replace(LOGNORMAL, keep_first=3)},
            r"clock\.keep_first=3 .*whose server waits for no round",
        ),
        ({"clock": "fast"}, "clock=fast is out of range: expected a VirtualClock, or null"),
        ({"max_norm": 10.0}, r"participation\.max_norm=10\.0 .*updates are of several rounds"),
        ({"privacy": CentralPrivacy()}, "privacy=CentralPrivacy .*counted by synchronous rounds"),
    ],
)
def test_what_makes_no_sense_is_refused(settings: dict[str, Any], line: str) -> None:
    with pytest.raises(ValueError, match=line):
        FedBuff(**settings)


def test_fedasync_has_no_buffer_and_groups_have_no_time() -> None:
    with pytest.raises(ValueError, match=r"strategy\.buffer_size=2 .*strategy=fedbuff has a buffer"):
        FedAsync(buffer_size=2)
    with pytest.raises(ValueError, match=r"strategy\.alpha=1\.5 is out of range"):
        FedAsync(alpha=1.5)
    with pytest.raises(ValueError, match="has a clock of its own"):
        Grouped(inner=FedBuff(), groups={"a": (0, 1)})
