"""What a node keeps is kept apart for each group's model, whatever it keeps."""

from pathlib import Path

import pytest
from flwr.app import ConfigRecord, RecordDict

from helpers.runs import curve, played
from strategies.shared import client_state

SMALL = "dataset=digits num_nodes=3 rounds=3 node_test_fraction=0.2"
FOR_ALL = "strategy=weight_erosion_all weighting.distance_penalty=0"


def records(**values: int) -> RecordDict:
    return RecordDict({name.replace("_of_", "@"): ConfigRecord({"v": v}) for name, v in values.items()})


def test_a_group_sees_its_own_records_under_their_own_names() -> None:
    state = records(moon_of_a=1, moon_of_ab=2, ditto_of_a=3)
    actual = client_state.load(state, "a")
    assert actual == records(moon=1, ditto=3)
    actual["moon"] = ConfigRecord({"v": 4})
    client_state.save(actual, state, "a")
    assert state == records(moon_of_a=4, moon_of_ab=2, ditto_of_a=3)


def test_without_groups_it_is_the_state_itself() -> None:
    state = records(moon=1)
    assert client_state.load(state, "") is state
    client_state.save(state, state, "")
    assert state == records(moon=1)


def test_what_comes_back_from_elsewhere_leaves_other_groups_records_alone() -> None:
    """Two messages went out with a part each; the second reply must not undo the first."""
    state = records(moon_of_a=1, moon_of_b=2, own=3)
    out = {group: client_state.select(state, group) for group in "ab"}
    assert out["a"] == records(moon_of_a=1, own=3)
    state = client_state.merge(state, records(moon_of_a=10, new_of_a=5, own=3), "a")
    state = client_state.merge(state, records(moon_of_b=20, own=3), "b")
    assert state == records(moon_of_a=10, new_of_a=5, moon_of_b=20, own=3)
    assert client_state.merge(state, records(own=4), "") == records(own=4)


@pytest.mark.parametrize(
    "kept",
    [
        "model=softmax client.optimizer.momentum=0.9 client.keep_optimizer=true",
        "model=softmax personal=ditto",
        "model=mlp private=fedper",
        "model=mlp corrections=moon",
        "model=softmax compression=top_k",
    ],
)
def test_weight_erosion_without_a_penalty_is_fedavg_for_every_node(kept: str, tmp_path: Path) -> None:
    """All of a node's models are then alike, if none of them sees what the others have left."""
    plain = played(f"{SMALL} {kept} strategy=fedavg weighting=uniform", tmp_path / "plain")
    for_all = played(f"{SMALL} {kept} {FOR_ALL}", tmp_path / "for all")
    assert len({*curve(plain, "test", "loss")}) > 3, "the model did not learn"
    for k in range(3):
        own = for_all[(for_all.model == f"node{k}") & (for_all["round"] > 0)]
        assert curve(own, "test", "loss") == curve(plain, "test", "loss")[1:]
    own = for_all[for_all.model == "own group"]
    expected = curve(plain, "node-test", "loss")  # the mean over nodes, added in another order
    assert curve(own, "node-test", "loss") == pytest.approx(expected, rel=1e-12)


def test_a_group_after_local_training_begins_without_what_its_nodes_kept(tmp_path: Path) -> None:
    """In its first round it is where it would be if no node had kept anything."""
    setting = (
        "strategy=selective grouping.threshold=0 strategy.local_rounds=2 validation_size=50 dataset=digits "
        "model=softmax num_nodes=3 rounds=3 client.optimizer.momentum=0.9 client.keep_optimizer"
    )
    kept, fresh = (played(f"{setting}={keep}", tmp_path / keep) for keep in ("true", "false"))
    local, grouped = (
        [rows[(rows["round"] == t) & (rows.split == "test")].value.tolist() for rows in (kept, fresh)]
        for t in (2, 3)
    )
    assert local[0] != local[1]
    assert grouped[0] == grouped[1]
