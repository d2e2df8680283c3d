"""Asynchronous rounds in real time: replies that come in a chosen order, too late, or never."""

import time
from collections import deque
from collections.abc import Iterable

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from baselines.engine.checkpoint import pack_value, unpack_value
from baselines.grids.superlink import PollingGrid
from helpers.federation import (
    Federation,
    Node,
    answer,
    assert_same,
    model_in,
    play,
    record,
    round_of,
    sent_model,
)
from strategies import ConstantStaleness, FedAsync, FedAvg, FedBuff, PolynomialStaleness, Uniform
from strategies.core.asynchronous import AsynchronousStrategy

NODES = 3
START = record({"w": np.zeros(1)})
TIMEOUT = 60.0  # seconds of the time that stands still but for pauses


@pytest.fixture(autouse=True)
def stopped(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the time, in which nothing passes but pauses."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    return now


def adding(partition_id: int, content: RecordDict) -> RecordDict:
    """Go on by 1, 2 or 4 from the model that is sent."""
    return answer({"w": sent_model(content)["w"] + 2.0**partition_id})


class Arriving(Federation):
    """A federation whose replies are there look by look, as ``looks`` says; then none is ever there."""

    def __init__(self, looks: Iterable[Iterable[int]], node: Node = adding, num_nodes: int = NODES) -> None:
        super().__init__(node, num_nodes)
        self.looks = deque(looks)

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        wanted = self.looks.popleft() if self.looks else ()
        of = {self.partition_of[self._replies[key].metadata.src_node_id]: key for key in message_ids}
        return super().pull_messages([of[k] for k in wanted])


def arrive(
    strategy: AsynchronousStrategy, grid: PollingGrid, arrays: ArrayRecord, rounds: Iterable[int]
) -> list[tuple[ArrayRecord, MetricRecord]]:
    """Play rounds as the engine does; return the model and the metrics after each of them."""
    history = []
    for server_round in rounds:
        messages = strategy.configure_train(server_round, arrays, ConfigRecord(), grid)
        assert strategy.has_enough is not None
        replies = grid.receive_arrivals(messages, strategy.has_enough, TIMEOUT)
        new, metrics = strategy.aggregate_train(server_round, replies)
        arrays = arrays if new is None else new
        history.append((arrays, metrics))
    return history


def history(strategy: AsynchronousStrategy, grid: Federation, rounds: int) -> list[float]:
    """Return the model of each round."""
    played = arrive(strategy, PollingGrid(grid), START, range(1, rounds + 1))
    assert not any("virtual-seconds" in metrics for _, metrics in played)
    return [model_in(arrays)["w"].item() for arrays, _ in played]


def test_fedbuff_by_hand() -> None:
    """Partition 2 brings 4 in round 2, one step late; 1 brings 2 in round 3, one step late."""
    grid = Arriving([(), (1,), (0,), (2,), (0,), (1, 0)])
    second = 1.5 + (4 / 2**0.5 + 1) / 2
    third = second + (2 / 2**0.5 + 1) / 2
    assert history(FedBuff(buffer_size=2, clock=None), grid, 3) == pytest.approx([1.5, second, third])
    assert grid.trained() == [0, 1, 2, 0, 1, 0, 2]  # who is done is sent the next model


def test_fedasync_by_hand() -> None:
    """Models of 2, 1 and 4, all made of 0, are 0, 1 and 2 steps old; the next of node 1 is made of 1."""
    strategy = FedAsync(alpha=0.5, staleness=PolynomialStaleness(a=1), clock=None)
    models = history(strategy, Arriving([(1,), (0,), (2,), (1,)]), 4)
    assert models == pytest.approx([1, 1, 1.5, 1.5 + (3 - 1.5) * 0.5 / 3])


def test_what_comes_beyond_a_full_buffer_is_in_the_next_in_its_order() -> None:
    """In one look 2, 1 and 0 come: 0 waits, one step, and is sent nothing meanwhile."""
    strategy = FedBuff(buffer_size=2, clock=None, staleness=ConstantStaleness())
    grid = Arriving([(2, 1, 0), (2, 1)])
    assert history(strategy, grid, 1) == [3]
    assert grid.trained() == [0, 1, 2]
    played = arrive(strategy, PollingGrid(grid), record({"w": np.full(1, 3.0)}), (2,))
    assert model_in(played[0][0])["w"].item() == 3 + (1 + 4) / 2
    assert played[0][1]["staleness"] == 0.5
    assert grid.trained() == [1, 2]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
def test_a_buffer_for_all_is_fedavg_to_the_byte(order: tuple[int, ...]) -> None:
    looks = [look for _ in range(4) for look in [[k] for k in order]]
    strategy = FedBuff(buffer_size=NODES, clock=None)
    one = arrive(strategy, PollingGrid(Arriving(looks)), START, range(1, 5))[-1][0]
    other = play(FedAvg(weighting=Uniform()), Federation(adding, NODES), START, range(1, 5))[-1][0]
    assert_same(one, other)


def test_a_lost_reply_keeps_nobody_from_going_on(stopped: list[float]) -> None:
    """Partition 2 never answers: two others go on, until it is idle again after the time limit."""
    strategy, grid = FedBuff(buffer_size=2, clock=None), Arriving([(0, 1)] * 3)
    polling = PollingGrid(grid)
    played = arrive(strategy, polling, START, (1, 2, 3))
    assert [metrics["failed"] for _, metrics in played] == [0, 0, 0]
    assert grid.trained() == [0, 1, 2, 0, 1, 0, 1]
    stopped[0] += TIMEOUT + 1
    grid.looks.extend([(0, 1), (2, 0)])
    late, fresh = arrive(strategy, polling, played[-1][0], (4, 5))
    assert late[1]["failed"] == 1
    assert grid.trained() == [0, 1, 0, 1, 2]
    assert fresh[1]["staleness"] == 0  # not its lost update of round 1
    assert strategy.participation_counts()["partition 2"] == {"updates": 1, "left_out": 1, "examples": 1}


def raising(partition_id: int, content: RecordDict) -> RecordDict:
    if partition_id == 1:
        raise RuntimeError("no memory")
    return adding(partition_id, content)


def unsound(partition_id: int, content: RecordDict) -> RecordDict:
    return adding(partition_id, content) if partition_id != 1 else answer({"w": np.full(1, np.nan)})


@pytest.mark.parametrize("node", [raising, unsound])
def test_a_round_waits_for_a_sound_reply(node: Node) -> None:
    """Partition 1 is always first, and never sound; it is sent the model again after the step."""
    grid = Arriving([(1,), (0,), (1,), (2,)], node)
    strategy = FedAsync(alpha=1, clock=None, staleness=ConstantStaleness(), max_failed_rounds=1)
    assert history(strategy, grid, 2) == [1, 4]
    assert grid.trained() == [0, 1, 2, 0, 1]
    assert strategy.participation_counts()["partition 1"]["left_out"] == 2


def test_two_bad_sites_are_not_most_while_others_are_at_work() -> None:
    """Sites 0 and 1 report a loss that is none after round 1; 2 is sound, and 3 at work."""

    def diverging(partition_id: int, content: RecordDict) -> RecordDict:
        bad = partition_id == 1 or (partition_id == 0 and round_of(content) > 1)
        return answer({"w": sent_model(content)["w"] + 2.0**partition_id}, loss=np.nan if bad else 1.0)

    strategy = FedAsync(alpha=1, clock=None, staleness=ConstantStaleness())
    strategy.registry.sites.update({f"site-{k}": k for k in range(4)})
    assert strategy.is_guarded
    grid = Arriving([(0,), (0,), (1,), (2,), (0,), (1,), (3,)], diverging, 4)
    start = record({"w": np.full(1, 5.0)})
    models = [model_in(one)["w"].item() for one, _ in arrive(strategy, PollingGrid(grid), start, (1, 2))]
    assert models == [6, 9]


def test_all_that_fail_end_a_wait_for_more() -> None:
    """With nobody at work the round takes no step, and the update that has come waits for the next."""
    strategy, grid = FedBuff(buffer_size=2, clock=None), Arriving([(0,)])
    played = arrive(strategy, PollingGrid(grid), START, (1,))
    assert played[0][1]["failed"] == 2
    grid.looks.append((1,))
    (model,) = arrive(strategy, PollingGrid(grid), START, (2,))
    assert model_in(model[0])["w"].item() == pytest.approx((2 + 1 / 2**0.5) / 2)


def test_resumed_it_sends_anew_what_was_under_way() -> None:
    before, after = FedBuff(buffer_size=2, clock=None), FedBuff(buffer_size=2, clock=None)
    middle = arrive(before, PollingGrid(Arriving([(0, 1)])), START, (1,))[-1][0]
    after.load_state_dict(unpack_value(pack_value(before.state_dict())))
    grid = Arriving([(2, 0)])
    ((model, metrics),) = arrive(after, PollingGrid(grid), middle, (2,))
    assert grid.trained() == [0, 1, 2]
    assert metrics["staleness"] == 0
    assert model_in(model)["w"].item() == 1.5 + 2.5


def test_nodes_at_work_evaluate_after_the_last_round_alone() -> None:
    strategy, grid = FedAsync(clock=None), Arriving([(1,), (0,)])
    strategy.set_num_rounds(2)
    polling = PollingGrid(grid)
    for server_round, judges in ((1, [1]), (2, [0, 1, 2])):
        arrive(strategy, polling, START, (server_round,))
        messages = strategy.configure_evaluate(server_round, START, ConfigRecord(), polling)
        assert [grid.partition_of[message.metadata.dst_node_id] for message in messages] == judges


def test_a_grid_that_waits_for_all_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"FedAsync with clock=None takes replies as they arrive, and a Fed"
    ):
        play(FedAsync(clock=None), Federation(adding, NODES), START)
