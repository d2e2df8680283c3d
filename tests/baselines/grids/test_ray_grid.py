"""The Ray grid: each node answers once, whatever befalls the workers."""

import logging
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from baselines.errors import UserError
from helpers import toys
from strategies.shared.arrays import SharedMean

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def two_processors() -> Iterator[None]:
    with toys.cluster(cpus=2):
        yield


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    toys.close()


@pytest.mark.usefixtures("two_processors")
def test_each_node_answers_each_round_and_remembers() -> None:
    grid = toys.grid(7)
    first = grid.get_node_ids()[0]
    for n in (1, 2):
        messages = toys.messages(grid, {k: {"seconds": 0.5} for k in range(7)})
        replies = grid.send_and_receive(messages)
        assert toys.node_counts(replies) == [(first + k, n) for k in range(7)]
        ids = {reply.metadata.reply_to_message_id for reply in replies}
        assert ids == {message.metadata.message_id for message in messages}
    assert {k: state["count"]["n"] for k, state in grid.node_states().items()} == dict.fromkeys(range(7), 2)
    pids = {toys.pid(reply) for reply in replies}
    assert len(pids) == 2
    toys.close()
    fresh = toys.grid(7)
    fresh.load_node_states(grid.node_states())
    assert toys.node_counts(fresh.send_and_receive(toys.messages(fresh)))[0] == (first, 3)


@pytest.mark.usefixtures("two_processors")
def test_a_message_whose_worker_dies_is_answered_by_another(tmp_path: Path) -> None:
    grid = toys.grid(5)
    replies = grid.send_and_receive(toys.messages(grid, {1: {"dies": str(tmp_path / "deaths")}}))
    assert [n for _, n in toys.node_counts(replies)] == [1] * 5  # and nobody was counted twice
    assert grid.lost == 0


@pytest.mark.usefixtures("two_processors")
def test_a_node_that_kills_every_worker_is_lost_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    grid = toys.grid(5, retries=1)
    config = {3: {"dies": str(tmp_path / "deaths"), "times": 99}}
    with caplog.at_level(logging.WARNING, "flwr.grids"):
        replies = grid.send_and_receive(toys.messages(grid, config))
    (lost,) = [reply for reply in replies if reply.has_error()]
    assert "its worker died 2 times" in lost.error.reason
    assert lost.metadata.src_node_id == grid.get_node_ids()[3]
    assert len(toys.node_counts(replies)) == 4
    assert grid.lost == 1
    assert "a worker on" in caplog.text
    assert toys.node_counts(grid.send_and_receive(toys.messages(grid)))[3][1] == 1  # it had not changed


@pytest.mark.usefixtures("two_processors")
def test_a_late_node_is_left_out_and_keeps_nobody_waiting() -> None:
    grid = toys.grid(4)
    grid.send_and_receive(toys.messages(grid))  # so that the workers are there
    began = time.monotonic()
    replies = grid.send_and_receive(toys.messages(grid, {2: {"seconds": 600}}), timeout=5)
    assert [node for node, _ in toys.node_counts(replies)] == [
        n for k, n in enumerate(grid.get_node_ids()) if k != 2
    ]
    assert len(toys.node_counts(grid.send_and_receive(toys.messages(grid)))) == 4  # in another worker
    assert time.monotonic() - began < 120


@pytest.mark.usefixtures("two_processors")
def test_short_answers_are_asked_for_several_at_a_time_until_one_takes_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "baselines.grids.ray.TARGET_TASK_SECONDS", 60.0
    )  # what a busy machine takes is short, too
    grid = toys.grid(12)
    for n, at_once in [(1, 1), (2, 6)]:  # how long an answer takes is not known at first
        replies = grid.send_and_receive(toys.messages(grid))
        assert toys.node_counts(replies) == [(node, n) for node in grid.get_node_ids()]
        assert {toys.at_once(reply) for reply in replies} == {at_once}
    replies = grid.send_and_receive(toys.messages(grid, {3: {"seconds": 6}}))
    assert toys.node_counts(replies) == [(node, 3) for node in grid.get_node_ids()]  # each once
    assert {toys.at_once(reply) for reply in replies} == {1, 6}


@pytest.mark.usefixtures("two_processors")
def test_a_machine_that_is_not_fit_is_named() -> None:
    grid = toys.grid(2, lacks="data set MNIST is not there")
    with pytest.raises(UserError, match=r"^machine .*: data set MNIST is not there$"):
        grid.send_and_receive(toys.messages(grid))


@pytest.mark.usefixtures("two_processors")
def test_more_than_any_machine_has_is_refused() -> None:
    grid = toys.grid(2, gpus=1)
    with pytest.raises(UserError, match=r"client_gpus=1 is more than any machine has \(2 CPUs and 0 GPUs"):
        grid.send_and_receive(toys.messages(grid))


@pytest.mark.usefixtures("two_processors")
def test_each_worker_takes_its_share_of_a_round_at_once() -> None:
    grid = toys.grid(5, batched=True)
    while len(grid.workers.ready) < 2:  # one that starts late would find nothing left to do
        grid.send_and_receive(toys.messages(grid))
    replies = grid.send_and_receive(toys.messages(grid))
    assert len({n for _, n in toys.node_counts(replies)}) == 1
    assert sorted(map(toys.at_once, replies)) == [2, 2, 3, 3, 3]
    assert len({toys.pid(reply) for reply in replies}) == 2
    evaluations = grid.send_and_receive(toys.messages(grid, kind="evaluate"))
    assert {toys.at_once(reply) for reply in evaluations} == {1}


@pytest.mark.usefixtures("two_processors")
def test_a_node_that_kills_its_worker_takes_no_other_of_its_share_along(tmp_path: Path) -> None:
    grid = toys.grid(5, batched=True, retries=1)
    config = {3: {"dies": str(tmp_path / "deaths"), "times": 99}}
    replies = grid.send_and_receive(toys.messages(grid, config))
    (lost,) = [reply for reply in replies if reply.has_error()]
    assert lost.metadata.src_node_id == grid.get_node_ids()[3]
    assert [n for _, n in toys.node_counts(replies)] == [1] * 4
    assert grid.lost == 1


@pytest.mark.usefixtures("two_processors")
def test_a_folded_model_counts_each_node_once_though_a_worker_dies(tmp_path: Path) -> None:
    grid = toys.grid(6, folded=True)
    while len(grid.workers.ready) < 2:
        grid.send_and_receive(toys.messages(grid))
    config: dict[int, dict[str, object]] = {1: {"dies": str(tmp_path / "deaths")}, 4: {"alone": True}}
    replies = grid.send_and_receive(toys.messages(grid, config))
    assert len(toys.node_counts(replies)) == 6
    assert grid.lost == 0
    means = {reply.metadata.src_node_id: reply.content.array_records.get("arrays") for reply in replies}
    nodes = grid.get_node_ids()
    assert means.pop(nodes[4]) is None  # what the server would leave out travels as it is
    assert all(isinstance(mean, SharedMean) for mean in means.values())
    different = {id(mean): mean for mean in means.values()}
    counted = [int(node) for mean in different.values() for node in mean["nodes"].numpy()]  # type: ignore[index]
    assert sorted(counted) == sorted(means)
    assert [int(node) for mean in different.values() for node in mean.sums["nodes"]] == counted  # type: ignore[union-attr]
    assert len(different) < len(means)  # the share of the worker that lived
    evaluations = grid.send_and_receive(toys.messages(grid, kind="evaluate"))
    assert not any(reply.content.array_records for reply in evaluations)
