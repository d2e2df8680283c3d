"""The virtual time of synchronous rounds: who comes in time, how long a round takes, and in metrics.csv."""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, RecordDict

from baselines.engine.virtual_time import VirtualTime
from helpers.federation import Federation, answer, model_in, record, sent_model
from helpers.runs import curve, played
from strategies import FedAvg, Grouped, TooManyFailedRounds, Uniform, VirtualClock
from strategies.core.clock import Profile

START = record({"w": np.zeros(1)})
SECONDS = (3.0, 1.0, 9.0, 2.0)


@dataclass(frozen=True, kw_only=True)
class Given(VirtualClock):
    """Seconds of a step by partition; node 2 is away for the first five."""

    def profile(self, seed: int, partition_id: int) -> Profile:
        windows = ((5.0, 1000.0),) if partition_id == 2 else ()
        return Profile(SECONDS[partition_id], math.inf, windows)


def node(partition_id: int, content: RecordDict) -> RecordDict:
    metrics = {"local-steps": 1, "partition-id": partition_id}
    return answer({"w": sent_model(content)["w"] + 10.0**partition_id}, **metrics)


def train(
    strategy: FedAvg | Grouped, times: VirtualTime, server_round: int = 1, failing: int | None = None
) -> tuple[float, dict[str, float], float]:
    """Play a round as the engine does; return the model, the metrics and the virtual seconds."""

    def serve(partition_id: int, content: RecordDict) -> RecordDict:
        if partition_id == failing:
            raise RuntimeError("no memory")
        return node(partition_id, content)

    grid = Federation(serve, 4)
    messages: list[Message] = list(strategy.configure_train(server_round, START, ConfigRecord(), grid))
    replies, passed_over, seconds = times.receive(messages, list(grid.send_and_receive(messages)))
    strategy.stop_awaiting(passed_over)
    arrays, metrics = strategy.aggregate_train(server_round, replies)
    return model_in(arrays or START)["w"].item(), dict(metrics), seconds  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("clock", "model", "replies", "failed", "seconds"),
    [
        (Given(), 1111 / 4, 4, 0, 14),  # the last is there from 5 on, and takes 9
        (Given(deadline=3.0), 1011 / 3, 3, 1, 3),  # in time is in time
        (Given(deadline=2.5), 1010 / 2, 2, 2, 2.5),
        (Given(deadline=20.0), 1111 / 4, 4, 0, 14),
        (Given(keep_first=2), 1010 / 2, 2, 0, 2),  # the others are passed over
        (Given(keep_first=4), 1111 / 4, 4, 0, 14),
        (Given(keep_first=3, deadline=2.5), 1010 / 2, 2, 2, 2.5),
        (Given(keep_first=2, deadline=2.5), 1010 / 2, 2, 0, 2),
    ],
    ids=lambda one: repr(one)[-40:],
)
def test_a_round_by_hand(
    clock: VirtualClock, model: float, replies: int, failed: int, seconds: float
) -> None:
    end, metrics, taken = train(FedAvg(weighting=Uniform()), VirtualTime(clock, 0))
    assert end == pytest.approx(model)
    assert (metrics["replies"], metrics["failed"], taken) == (replies, failed, seconds)


def test_times_add_up() -> None:
    times, strategy = VirtualTime(Given(), 0), FedAvg(weighting=Uniform())
    assert [train(strategy, times, t)[2] for t in (1, 2, 3)] == [14, 9, 9]  # then node 2 is there
    assert times.now == 32


def test_a_failure_takes_no_time_and_does_not_count_among_the_first() -> None:
    end, metrics, seconds = train(
        FedAvg(weighting=Uniform()), VirtualTime(Given(keep_first=2), 0), failing=1
    )
    assert (end, metrics["failed"], seconds) == (pytest.approx(1001 / 2), 1, 3)


def test_too_few_in_time_is_a_failed_round() -> None:
    strategy, times = FedAvg(min_replies=3, max_failed_rounds=2), VirtualTime(Given(deadline=2.0), 0)
    assert train(strategy, times)[0] == 0
    with pytest.raises(
        TooManyFailedRounds, match=r"2 sound replies, min_replies=3 .*did not answer in time"
    ):
        train(strategy, times, 2)
    assert times.now == 4


def test_too_few_that_are_kept_is_no_failure() -> None:
    strategy = FedAvg(min_replies=3, max_failed_rounds=1)
    assert train(strategy, VirtualTime(Given(keep_first=2), 0))[0] == 0


def test_groups_pass_over_their_own() -> None:
    groups = Grouped(inner=FedAvg(weighting=Uniform()), groups={"a": (0, 1), "b": (2, 3)})
    _, metrics, seconds = train(groups, VirtualTime(Given(keep_first=3), 0))
    assert (metrics["replies"], metrics["failed"], seconds) == (3, 0, 3)


@pytest.mark.slow
def test_a_run_writes_its_virtual_seconds_and_resumes(tmp_path: Path) -> None:
    """The nodes come and go, so that a round's length depends on when it begins."""
    clock = "clock=lognormal clock.available_share=0.5 clock.available_period=40 clock.keep_first=2"
    setting = f"dataset=digits num_nodes=3 checkpoint_every=1 {clock}"
    whole = curve(played(f"{setting} rounds=5", tmp_path / "whole"), "train", "virtual_seconds")
    played(f"{setting} rounds=2", tmp_path / "parts")
    parts = played(f"{setting} rounds=5 resume=true", tmp_path / "parts")
    assert curve(parts, "train", "virtual_seconds") == whole
    assert len(set(whole)) > 2
    plain = played("dataset=digits num_nodes=3 rounds=1", tmp_path / "plain")
    assert "virtual_seconds" not in set(plain.metric)
