"""A server that doubts: updates of any length, counts of any size, and evaluations that claim too much."""

import logging
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from baselines.engine import checkpoint
from baselines.engine.metrics import summarise_sites
from baselines.grids.inline import InlineGrid
from helpers.runs import launch, metrics_in, played
from strategies import CentralPrivacy, FedAdam, FedAvg, FedExP, FedGMA, Scaffold, Uniform
from strategies.core.replies import cap_weights
from strategies.core.update_monitor import Recovery
from strategies.shared import protocol

START = ArrayRecord({"w": Array(np.zeros(4, dtype=np.float32))})
LENGTHS = {"north": 1.0, "south": 1.1, "west": 1e30}  # the last is the attacker's, in one round


class Sites:
    """Three sites, one of which sends what ``attack`` says in round 1."""

    def __init__(self, attack: Mapping[str, object] | None = None, **lengths: float) -> None:
        self.lengths, self.attack = {"north": 1.0, "south": 1.1, "west": 1.2} | lengths, attack or {}

    def __call__(self, message: Message, context: object) -> Message:
        name = str(context.node_config["site"])  # type: ignore[attr-defined]
        if message.metadata.message_type == "query":
            return Message(
                RecordDict({protocol.CONFIG: ConfigRecord({protocol.SITE: name})}), reply_to=message
            )
        config = message.content[protocol.CONFIG]
        sent = message.content[protocol.ARRAYS]["w"].numpy()
        is_first = config[protocol.SERVER_ROUND] == 1
        length = self.lengths[name] if is_first or min(self.lengths.values()) > 1e6 else 1.0
        is_lost = bool(np.abs(sent).max() > 1e6) and (name != "west" or min(self.lengths.values()) > 1e6)
        metrics = {"num-examples": 90, "loss": math.nan if is_lost else 0.5, "accuracy": 0.5}
        metrics[protocol.PARTITION_ID] = config[protocol.PARTITION_ID]
        if name == "west" and config[protocol.SERVER_ROUND] > 1:
            metrics |= self.attack  # type: ignore[arg-type]
        arrays = ArrayRecord({"w": Array((sent - length / 2).astype(np.float32))})  # norm: length
        return Message(
            RecordDict({protocol.ARRAYS: arrays, protocol.METRICS: MetricRecord(metrics)}),  # type: ignore[arg-type]
            reply_to=message,
        )


def grid_of(sites: Sites) -> InlineGrid:
    return InlineGrid(sites, 3, sites=dict.fromkeys(sites.lengths, "/data"))  # type: ignore[arg-type]


def trained(
    strategy: FedAvg, sites: Sites, rounds: int, first: int = 1, arrays: ArrayRecord = START
) -> ArrayRecord:
    grid = grid_of(sites)
    for server_round in range(first, first + rounds):
        messages = list(strategy.configure_train(server_round, arrays, ConfigRecord(), grid))
        aggregated, _ = strategy.aggregate_train(server_round, grid.send_and_receive(messages))
        arrays = aggregated or arrays
    return arrays


def values(arrays: ArrayRecord) -> np.ndarray:
    return arrays["w"].numpy()


STRATEGIES = [FedAvg, FedGMA, FedExP, FedAdam]


@pytest.mark.parametrize("kind", STRATEGIES)
def test_an_update_out_of_proportion_is_left_out_by_name(
    kind: type[FedAvg], caplog: pytest.LogCaptureFixture
) -> None:
    strategy = kind(num_nodes=3, max_norm="auto", query_partitions=True)
    with caplog.at_level(logging.WARNING, "flwr.strategies"):
        model = trained(strategy, Sites(west=1e30), 1)
    assert any("site west left out: the norm of its update is 1e+30" in line for line in caplog.messages)
    assert strategy.update_norms() == pytest.approx({"north": 1, "south": 1.1, "west": 1e30})
    assert np.abs(values(model)).max() < 10


@pytest.mark.parametrize("kind", [FedAvg, FedGMA, FedExP])  # FedAdam's steps have their own length
def test_the_server_goes_back_to_the_last_good_model_and_leaves_the_site_out(
    kind: type[FedAvg], caplog: pytest.LogCaptureFixture
) -> None:
    strategy = kind(num_nodes=3, query_partitions=True)
    with caplog.at_level(logging.WARNING, "flwr.strategies"):
        model = trained(strategy, Sites(west=1e30), 5)
    log = " ".join(caplog.messages)
    assert "back to the last good model" in log
    assert "site west (norm 1e+30)" in log
    assert "site west is left out from here on" in log
    assert np.isfinite(values(model)).all()
    assert np.abs(values(model)).max() < 10
    assert strategy.update_norms().keys() == {"north", "south"}


def test_a_lone_update_is_nobodys_fault() -> None:
    recovery = Recovery()
    recovery.send(START, {})
    recovery.accept({0: 1e30})
    actual = recovery.roll_back()
    assert actual is not None
    assert actual[-1] is None
    assert not recovery.excluded


@pytest.mark.parametrize("readmit", [(), ("west",)])
def test_one_that_is_readmitted_takes_part_again_in_a_resumed_run(readmit: tuple[str, ...]) -> None:
    first = FedAvg(num_nodes=3, query_partitions=True, readmit=readmit)
    model = trained(first, Sites(west=1e30), 3)
    assert first.update_norms().keys() == {"north", "south"}
    resumed = FedAvg(num_nodes=3, query_partitions=True, readmit=readmit)
    resumed.load_state_dict(first.state_dict())
    trained(resumed, Sites(), 1, 4, model)
    assert resumed.update_norms().keys() == {"north", "south", *readmit}


class Losing(Sites):
    """Sites of which all but one lose their loss in round 3, whatever the model."""

    def __call__(self, message: Message, context: object) -> Message:
        reply = super().__call__(message, context)
        config = message.content[protocol.CONFIG]
        if message.metadata.message_type == "train":
            name = str(context.node_config["site"])  # type: ignore[attr-defined]
            if config[protocol.SERVER_ROUND] == 3 and name != "west":
                reply.content[protocol.METRICS][protocol.LOSS] = math.nan  # type: ignore[index]
            if protocol.CONTROL in message.content:
                reply.content[protocol.CONTROL] = ArrayRecord({"w": Array(np.ones(4, dtype=np.float32))})
        return reply


def test_what_was_spent_stays_spent_when_the_server_goes_back() -> None:
    privacy = CentralPrivacy(clip=1.0, noise_multiplier=1.0, noise_seed=0)
    strategy = FedAvg(num_nodes=3, query_partitions=True, privacy=privacy, weighting=Uniform())
    trained(strategy, Losing(), 3)
    assert [entry["updates"] for entry in strategy.participation_counts().values()] == [2, 2, 3]
    assert strategy.participation_counts()["site north"]["left_out"] == 1
    assert strategy.accountant.rounds == 3


def test_variates_begin_anew_when_the_server_goes_back() -> None:
    strategy = Scaffold(num_nodes=3, query_partitions=True)
    sites = Losing()
    model = trained(strategy, sites, 3)
    last_good = trained(Scaffold(num_nodes=3, query_partitions=True), Losing(), 1)
    np.testing.assert_array_equal(values(model), values(last_good))
    messages = list(strategy.configure_train(4, model, ConfigRecord(), grid_of(sites)))
    content = messages[0].content
    assert list(content[protocol.CONFIG][protocol.CONTROL_LOST]) == [0, 1, 2]
    assert list(content[protocol.CONFIG][protocol.CONTROL_COUNTED]) == [0, 0, 0]
    assert not content[protocol.CONTROL]["w"].numpy().any()


def test_a_median_of_nothing_leaves_out_nobody() -> None:
    strategy = FedAvg(num_nodes=3, query_partitions=True, max_norm="auto")
    model = trained(strategy, Sites(north=0.0, south=0.0, west=1.0), 1)
    assert values(model).any()


def test_norms_are_not_looked_at_before_they_have_their_noise() -> None:
    privacy = CentralPrivacy(clip=1.0, noise_multiplier=1.0, noise_seed=0)
    with pytest.raises(ValueError, match="max_norm"):
        FedAvg(num_nodes=3, privacy=privacy, weighting=Uniform(), max_norm="auto")


class Uncounted(Sites):
    """Sites of which two have no number of test examples."""

    def __call__(self, message: Message, context: object) -> Message:
        reply = super().__call__(message, context)
        name = str(context.node_config["site"])  # type: ignore[attr-defined]
        if message.metadata.message_type == "evaluate" and name != "north":
            reply.content[protocol.METRICS][protocol.NUM_EXAMPLES] = math.nan  # type: ignore[index]
        return reply


def test_a_site_without_a_count_is_none_that_diverged() -> None:
    strategy = FedAvg(num_nodes=3, query_partitions=True)
    assert evaluated(strategy, Uncounted()) == {"accuracy": 0.5, "loss": 0.5}
    assert strategy.per_site_metrics().keys() == {"north"}


def test_the_spread_over_sites_hides_no_nan() -> None:
    for rows in ([0.5, math.nan], [math.nan, 0.5]):
        actual = summarise_sites({str(place): {"loss": value} for place, value in enumerate(rows)})
        assert all(map(math.isnan, actual.values()))


def test_where_norms_do_not_tell_nobody_is_left_out_and_the_run_fails_as_before() -> None:
    strategy = FedAvg(num_nodes=3, query_partitions=True)
    with pytest.raises(RuntimeError, match="3 rounds in a row failed"):
        trained(strategy, Sites(north=1e30, south=1e30, west=1e30), 12)


@pytest.mark.parametrize("kind", STRATEGIES)
def test_a_resumed_run_doubts_as_one_that_was_not_interrupted(kind: type[FedAvg]) -> None:
    for at in (1, 2, 3):
        whole = kind(num_nodes=3, query_partitions=True)
        expected = trained(whole, Sites(west=1e30), 5)
        first = kind(num_nodes=3, query_partitions=True)
        model = trained(first, Sites(west=1e30), at)
        second = kind(num_nodes=3, query_partitions=True)
        second.load_state_dict(first.state_dict())
        model = trained(second, Sites(west=1e30), 5 - at, at + 1, model)
        np.testing.assert_array_equal(values(model), values(expected))


def test_a_site_cannot_count_more_examples_than_at_first(caplog: pytest.LogCaptureFixture) -> None:
    strategy = FedAvg(num_nodes=3, query_partitions=True)
    with caplog.at_level(logging.WARNING, "flwr.strategies"):
        trained(strategy, Sites({"num-examples": 1_000_000}), 2)
    assert any(
        "site west left out: reports 1000000 examples, and first said 90" in m for m in caplog.messages
    )


def evaluated(strategy: FedAvg, sites: Sites) -> MetricRecord | None:
    grid = grid_of(sites)
    messages = list(strategy.configure_evaluate(2, START, ConfigRecord(), grid))
    return strategy.aggregate_evaluate(2, grid.send_and_receive(messages))


def test_a_site_that_claims_everything_counts_for_half_at_most() -> None:
    claim = {"num-examples": 10**9, "accuracy": 1.0, "loss": 0.0}
    actual = evaluated(FedAvg(num_nodes=3, query_partitions=True), Sites(claim))
    assert actual is not None
    assert actual["accuracy"] == pytest.approx(0.5 * 1 + 0.25 * 0.5 + 0.25 * 0.5)
    equally = evaluated(FedAvg(num_nodes=3, query_partitions=True, max_share=0), Sites(claim))
    assert equally is not None
    assert equally["accuracy"] == pytest.approx(2 / 3)


def test_sites_without_a_number_are_not_outvoted_by_one_that_has_one() -> None:
    claim = {"num-examples": 10**9, "accuracy": 1.0, "loss": 0.0}
    sites = Sites(claim)
    strategy = FedAvg(num_nodes=3, query_partitions=True)
    lost = ArrayRecord({"w": Array(np.full(4, 1e9, dtype=np.float32))})  # of which the honest say NaN
    grid = grid_of(sites)
    messages = list(strategy.configure_evaluate(2, lost, ConfigRecord(), grid))
    actual = strategy.aggregate_evaluate(2, grid.send_and_receive(messages))
    assert actual is not None
    assert math.isnan(actual["loss"])  # type: ignore[arg-type]
    rows = strategy.per_site_metrics()
    assert math.isnan(rows["north"]["loss"])
    assert rows["west"]["loss"] == 0


@pytest.mark.parametrize(
    ("weights", "share", "expected"),
    [
        ([1, 1, 1], 0.5, [1, 1, 1]),
        ([100, 1, 1], 0.5, [2, 1, 1]),
        ([1, 100, 100], 0.4, [1, 2, 2]),
        ([5, 3], 0.5, [1, 1]),
        ([5, 3, 2], 0, [1, 1, 1]),
        ([5, 3, 2], 1, [5, 3, 2]),
        ([0, 0, 7], 0.5, [0, 0, 0]),
    ],
)
def test_no_weight_is_more_than_its_share(
    weights: list[float], share: float, expected: list[float]
) -> None:
    actual = cap_weights(torch.tensor(weights, dtype=torch.float64), share)
    torch.testing.assert_close(actual, torch.tensor(expected, dtype=torch.float64))


@pytest.mark.slow
def test_a_simulation_shows_each_nodes_norm_where_it_is_asked_to(tmp_path: Path) -> None:
    setting = "dataset=digits model=softmax num_nodes=2 rounds=1 evaluation.per_node=true"
    rows = played(setting, tmp_path)
    norms = rows[rows.metric == "update_norm"].set_index("model").value
    assert list(norms.index) == ["node 0", "node 1"]
    assert (norms > 0).all()
    plain = played(setting.replace("true", "false"), tmp_path / "plain")
    assert "update_norm" not in set(plain.metric)


def test_several_checkpoints_are_kept_and_the_latest_whole_one_is_resumed_from(tmp_path: Path) -> None:
    setting = ["dataset=digits", "model=softmax", "num_nodes=2", "checkpoint_every=1", "checkpoint_keep=2"]
    whole, folder = tmp_path / "whole", tmp_path / "run"
    assert launch(*setting, "rounds=4", f"hydra.run.dir={whole}") == 0
    assert launch(*setting, "rounds=3", f"hydra.run.dir={folder}") == 0
    kept = folder / "checkpoint"
    assert sorted(path.name for path in kept.iterdir()) == [
        "latest.pt",
        "round-000002.pt",
        "round-000003.pt",
    ]
    (kept / "latest.pt").unlink()  # a poisoned one is taken away with its copy
    (kept / "round-000003.pt").write_bytes(b"torn")
    assert launch(*setting, "rounds=4", f"hydra.run.dir={folder}", "resume=true") == 0
    pd.testing.assert_frame_equal(metrics_in(folder), metrics_in(whole))


@pytest.mark.slow
def test_a_run_that_goes_on_from_an_earlier_checkpoint_keeps_none_of_later_rounds(tmp_path: Path) -> None:
    setting = ["dataset=digits", "model=softmax", "num_nodes=2", "checkpoint_every=1", "checkpoint_keep=2"]
    folder = tmp_path / "run"
    assert launch(*setting, "rounds=4", f"hydra.run.dir={folder}") == 0
    kept = folder / "checkpoint"
    for name in ("latest.pt", "round-000004.pt"):
        (kept / name).write_bytes(b"torn")
    saved = checkpoint.load(folder)
    assert saved is not None
    assert saved.server_round == 3
    replace(saved, server_round=2).save(folder, keep=2)
    assert sorted(path.name for path in kept.iterdir()) == ["latest.pt", "round-000002.pt"]
    replace(saved, server_round=3).save(folder, keep=1)
    assert [path.name for path in kept.iterdir()] == ["latest.pt"]


@pytest.mark.slow
def test_checkpoints_are_kept_where_files_have_one_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(*_: object) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr("os.link", link)
    setting = ["dataset=digits", "model=softmax", "num_nodes=2", "checkpoint_every=1", "checkpoint_keep=2"]
    assert launch(*setting, "rounds=2", f"hydra.run.dir={tmp_path}") == 0
    assert len(list((tmp_path / "checkpoint").iterdir())) == 3
