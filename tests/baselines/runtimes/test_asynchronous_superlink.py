"""Asynchronous rounds on a real SuperLink, with three nodes of different speed."""

import json
import os
from pathlib import Path

import pytest

from helpers.checkout import ROOT
from helpers.runs import launch, metrics_in

MODULE = """
import time

from clients import Correction


class Slower(Correction):
    def __init__(self, start, seconds):
        time.sleep(seconds * start.partition_id)
"""
SETTING = (
    "strategy=fedasync clock=none dataset=digits model=softmax partitioner=iid num_nodes=3 rounds=6 "
    "node_test_fraction=0.2 evaluate_every=6 checkpoint_every=6 node_timeout=600 runtime=superlink"
)
SECONDS = 15  # by which node 1 is slower; node 2 by twice as many


@pytest.mark.slow
@pytest.mark.runtime
def test_the_faster_a_node_the_more_it_contributes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slowness.py").write_text(MODULE)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(tmp_path)]))
    monkeypatch.syspath_prepend(tmp_path)
    slower = f"+client.corrections.slower={{_target_:slowness.Slower,_partial_:true,seconds:{SECONDS}}}"
    assert launch(*SETTING.split(), slower, f"hydra.run.dir={tmp_path / 'run'}") == 0
    environment = json.loads((tmp_path / "run" / "environment.json").read_text())
    updates = {name: counts["updates"] for name, counts in environment["contributions"].items()}
    counts = [updates.get(f"partition {k}", 0) for k in range(3)]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > counts[2]
    rows = metrics_in(tmp_path / "run")
    train = rows[rows.split == "train"].pivot(index="round", columns="metric", values="value")
    assert list(train.index) == list(range(1, 7))
    assert (train.replies == 1).all()
    assert (train.failed == 0).all()
    assert train.staleness.max() > 0
    last = rows[(rows.split == "node-test") & (rows["round"] == 6)]
    assert set(last.metric) >= {"accuracy", "loss"}
