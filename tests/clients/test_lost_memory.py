"""A node that is restarted loses what it keeps between rounds: the server's log names it, and no other."""

from pathlib import Path

import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict

from helpers.runs import App, played

SMALL = "dataset=digits model=softmax num_nodes=3 rounds=4"
LOST = "has lost what it kept between rounds (it was restarted?)"
MOMENTUM = "client.optimizer.momentum=0.9 client.keep_optimizer=true"
KEEPING = [
    "strategy=scaffold",
    "strategy=feddyn",
    MOMENTUM,
    "personal=ditto node_test_fraction=0.2",
    "model=mlp private=fedper node_test_fraction=0.2",
    "model=mlp corrections=moon",
    "compression=top_k",
]


def restarted(app: App) -> App:
    """Let partition 1 begin round 3 without its state."""

    def begun_anew(message: Message, context: Context) -> Message:
        config = message.content.config_records.get("config", ConfigRecord())
        if message.metadata.message_type == "train" and config["server-round"] == 3:
            context.state = RecordDict() if context.node_config["partition-id"] == 1 else context.state
        return app(message, context)

    return begun_anew


def messages_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if LOST in record.getMessage()]


@pytest.mark.parametrize("method", KEEPING)
def test_a_node_that_has_lost_its_state_is_named_once(
    method: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = played(f"{SMALL} {method}", tmp_path, restarted)
    assert messages_of(caplog) == [f"round 3: partition 1 {LOST}"]
    assert not rows.metric.str.contains("kept").any()


@pytest.mark.parametrize("method", KEEPING)
def test_one_that_has_all_is_not(method: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    played(f"{SMALL} {method} nodes_per_round=2", tmp_path)
    assert messages_of(caplog) == []


@pytest.mark.parametrize(
    "method", ["strategy=fedavg", f"{MOMENTUM} weighting=uniform privacy=local privacy.clip=1"]
)
def test_nothing_is_said_where_a_node_keeps_nothing_or_may_not_tell(
    method: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def listening(app: App) -> App:
        def answered(message: Message, context: Context) -> Message:
            reply = app(message, context)
            records.update(reply.content)
            return reply

        return restarted(answered)

    records: set[str] = set()
    played(f"{SMALL} {method}", tmp_path, listening)
    assert messages_of(caplog) == []
    assert records == {"arrays", "metrics"} | ({"config"} if "local" in method else set())


def test_a_group_that_is_made_anew_takes_no_node_for_restarted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    grouped = "strategy=selective grouping.threshold=0 strategy.local_rounds=2 validation_size=50"
    played(f"{SMALL} {grouped} {MOMENTUM}", tmp_path)
    assert messages_of(caplog) == []
