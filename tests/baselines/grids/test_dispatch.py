"""What is done aside: it keeps nobody waiting, and is not lost with what is done first."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray

from baselines.engine.ray_evaluator import Evaluating
from baselines.errors import RunFailed
from baselines.grids.ray_pool import Dispatch
from helpers import toys

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def one_processor() -> Iterator[None]:
    with toys.cluster(cpus=1):
        yield


@pytest.fixture
def dispatch() -> Iterator[Dispatch]:
    yield toys.grid(1).dispatch
    toys.close()


def noting(*arguments: Any) -> Evaluating:
    """Return a task that notes when it was done, [seconds]."""
    return Evaluating(arguments, range(1), "note")


def test_it_waits_for_what_comes_first(dispatch: Dispatch) -> None:
    aside, first = [noting() for _ in range(3)], [noting() for _ in range(3)]
    later = dispatch.add(aside, aside=True)
    now = dispatch.add(first)
    dispatch.finish(now)
    dispatch.finish(later)
    assert max(task.outcome()[0] for task in first) < min(task.outcome()[0] for task in aside)


def test_it_goes_on_while_nobody_waits_for_it(dispatch: Dispatch) -> None:
    dispatch.finish(dispatch.add([noting()]))
    group = dispatch.add([noting()], aside=True)  # there is a worker, with nothing to do
    time.sleep(1)
    begin = time.monotonic()
    dispatch.finish(group)
    assert time.monotonic() - begin < 0.5


def test_a_round_that_is_late_does_not_take_it_along(dispatch: Dispatch) -> None:
    dispatch.finish(dispatch.add([noting()]))
    slow = dispatch.add([noting("sleeps", 600)])
    aside = noting()
    group = dispatch.add([aside], aside=True)
    began = time.monotonic()
    dispatch.finish(slow, timeout=1)
    dispatch.finish(group)
    assert aside.outcome()[0] > began
    assert time.monotonic() - began < 120


def test_an_interruption_while_an_answer_is_read_leaves_all_in_order(
    dispatch: Dispatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    dispatch.finish(dispatch.add([noting()]))  # there is a worker
    read = ray.get

    def interrupted(_: object) -> None:
        monkeypatch.setattr(ray, "get", read)
        raise KeyboardInterrupt

    monkeypatch.setattr(ray, "get", interrupted)
    with pytest.raises(KeyboardInterrupt):
        dispatch.finish(dispatch.add([noting()]))
    assert not dispatch._sent
    task = noting()
    dispatch.finish(dispatch.add([task]))
    assert len(task.outcome()) == 1


def test_its_death_is_not_the_last_word(dispatch: Dispatch, tmp_path: Path) -> None:
    once, always = noting("dies", tmp_path / "once", 1), noting("dies", tmp_path / "always", 99)
    dispatch.finish(dispatch.add([once, always], aside=True))
    assert len(once.outcome()) == 1
    with pytest.raises(RunFailed, match="a model could not be evaluated: its worker died 3 times"):
        always.outcome()


def test_a_death_is_blamed_on_nobody_where_two_had_been_sent_to_the_worker(
    dispatch: Dispatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first may have been done, and its answer lost with the worker that the second killed."""
    monkeypatch.setattr(
        "baselines.grids.ray_pool.SHORT_TASK_SECONDS", 60.0
    )  # a busy machine's tasks are short, too
    dispatch.retries = 0
    dispatch.finish(dispatch.add([noting()]))  # tasks are short
    once, other, always = noting("dies", tmp_path / "1", 1), noting(), noting("dies", tmp_path / "2", 99)
    dispatch.finish(dispatch.add([once, other, always]))
    assert len(once.outcome()) == len(other.outcome()) == 1
    with pytest.raises(RunFailed, match="its worker died 1 times"):
        always.outcome()


def test_what_ray_itself_raises_in_a_worker_is_a_death(dispatch: Dispatch, tmp_path: Path) -> None:
    """A worker whose machine was killed under it cannot read what it is sent, and says so first."""
    task = noting("breaks", tmp_path / "once", 1)
    dispatch.finish(dispatch.add([task]))
    assert len(task.outcome()) == 1


def test_what_it_raises_is_told_to_who_asks(dispatch: Dispatch) -> None:
    task = noting("raises")
    dispatch.finish(dispatch.add([task], aside=True))
    with pytest.raises(ValueError, match="of this task"):
        task.outcome()
