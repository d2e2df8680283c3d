"""The same seed gives the same metrics on every runtime, byte for byte."""

import contextlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from baselines.engine.environment import git_commit
from baselines.runtimes import Inline
from helpers.checkout import ROOT
from helpers.runs import launch

pytestmark = pytest.mark.slow
NEWEST = pytest.mark.runtime  # on the newest Flower, too

# SCAFFOLD, because its variates live in the nodes' state from round to round.
SCAFFOLD = "strategy=scaffold dataset=digits partitioner=dirichlet num_nodes=2 rounds=2 seed=3"
# Several models, and more test examples than one batch, so that there is something to share out.
SELECTIVE = (
    "strategy=selective strategy.local_rounds=1 validation_size=50 dataset=digits "
    "dataset.load.test_size=0.8 model=softmax num_nodes=3 rounds=5 evaluate_every=2"
)
# Each node's own model lies in its state, and is what the node evaluates; losses of the nodes' own, and gradients
# that are taken elsewhere; the server chooses by what nodes report.
PERSONAL = (
    "strategy=oort personal=apfl corrections=[fedsam,fedlc,fedntd,feddecorr] dataset=digits num_nodes=4 "
    "nodes_per_round=2 rounds=3 node_test_fraction=0.2"
)
# The server sends a momentum, and nodes their gradients.
MIME = "strategy=mimelite personal=ditto dataset=digits num_nodes=4 nodes_per_round=2 rounds=3 node_test_fraction=0.2"
# Nodes choose among several models, in training and in their evaluation.
CLUSTERS = (
    "strategy=hypcluster dataset=digits num_nodes=4 rounds=3 node_test_fraction=0.2 compression=top_k "
    "partitioner=label_groups"
)
PROTOTYPES = "strategy=fedproto dataset=digits num_nodes=3 rounds=3 node_test_fraction=0.2"
# The server distils each node's model, by itself and with the others'.
DISTILLED = (
    "strategy=codistillation strategy.inner._target_=strategies.FedDF validation_size=50 dataset=digits "
    "model=softmax num_nodes=4 nodes_per_round=2 rounds=3"
)
# Candidates are asked before a round, at its model; the layers that a node keeps are in its state.
ASKING = (
    "strategy=power_of_choice strategy.asks=true strategy.candidates=4 strategy.loss_examples=30 count_bytes=true "
    "private=fedper node_test_fraction=0.2 dataset=digits num_nodes=5 nodes_per_round=2 rounds=4"
)
# Replies wait for their virtual arrival, whichever worker has made them first; what is left out of them lives in
# the nodes' state, and a node may stop before the others.
BUFFERED = (
    "strategy=fedbuff corrections=inexact client.local_epochs=5 compression=top_k compression.bits=4 "
    "count_bytes=true dataset=digits num_nodes=5 nodes_per_round=4 rounds=6"
)
MIXED = "strategy=fedasync corrections=proximal dataset=digits num_nodes=5 nodes_per_round=4 rounds=6"
FOR_ALL = (  # each node keeps something for each of three models
    "strategy=weight_erosion_all dataset=digits num_nodes=3 rounds=3 client.keep_optimizer=true "
    "client.optimizer.momentum=0.9 compression=top_k"
)
MANY = (
    "experiment=fedexp/synthetic dataset.load.dimension=10 dataset.load.rows=1 client.local_steps=1 "
    "dataset.load.num_nodes=10000 num_nodes=10000 nodes_per_round=50 rounds=3 "
    "step_size=constant weighting=uniform privacy=local"
)


def rows_in(folder: Path) -> list[str]:
    """Return metrics.csv without the rows that are times."""
    rows = (folder / "metrics.csv").read_text().splitlines()
    return [row for row in rows if "seconds" not in row or ",virtual_seconds," in row]


@pytest.mark.parametrize(
    ("runtime", "nodes", "setting", "own_process"),  # one of each runtime as a user starts it
    [
        pytest.param(
            "ray",
            2,
            f"{SCAFFOLD} runtime.cpus=2 node_test_fraction=0.2 nodes_per_round=1",
            True,
            id="scaffold on ray",
            marks=NEWEST,
        ),
        pytest.param("ray", 3, f"{SELECTIVE} runtime.cpus=2", False, id="selective on ray"),
        pytest.param("ray", 4, f"{PERSONAL} runtime.cpus=2", False, id="oort, apfl and losses on ray"),
        pytest.param("ray", 4, f"{MIME} runtime.cpus=2", False, id="mimelite and ditto on ray"),
        pytest.param("ray", 4, f"{CLUSTERS} runtime.cpus=2", False, id="clusters on ray"),
        pytest.param("ray", 3, f"{PROTOTYPES} runtime.cpus=2", False, id="prototypes on ray"),
        pytest.param("ray", 5, f"{ASKING} runtime.cpus=2", False, id="pow-d on ray"),
        pytest.param("ray", 5, f"{BUFFERED} runtime.cpus=2", False, id="fedbuff on ray"),
        pytest.param("ray", 5, f"{MIXED} runtime.cpus=2", False, id="fedasync on ray"),
        pytest.param("ray", 3, f"{FOR_ALL} runtime.cpus=2", False, id="weight erosion for all on ray"),
        pytest.param("ray", 4, f"{DISTILLED} runtime.cpus=2", False, id="distilled on ray"),
        pytest.param("ray", 10_000, f"{MANY} runtime.cpus=2", False, id="10,000 nodes on ray"),
        pytest.param(
            "superlink",
            2,
            f"{SCAFFOLD} runtime.tls=true runtime.authenticate=true",
            True,
            id="scaffold on a secure superlink",
            marks=NEWEST,
        ),
    ],
)
def test_every_runtime_gives_the_metrics_of_inline(
    runtime: str, nodes: int, setting: str, own_process: bool, tmp_path: Path
) -> None:
    setting = f"{setting} runtime={runtime}"
    Inline().run(setting, nodes, tmp_path / "inline")
    expected = rows_in(tmp_path / "inline")
    assert len({row.split(",")[0] for row in expected}) > 3  # header, round 0 and two more
    words = [*setting.split(), f"hydra.run.dir={tmp_path / runtime}"]
    if own_process:
        done = subprocess.run(
            [sys.executable, "-m", "baselines.run", *words],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    else:
        assert launch(*words) == 0
    assert rows_in(tmp_path / runtime) == expected
    assert (tmp_path / runtime / "figures" / "metrics.png").exists()
    environment = json.loads((tmp_path / runtime / "environment.json").read_text())
    assert environment["git_commit"] == git_commit()
    if runtime == "ray":  # its workers say how they have taken the steps, some of them twice:
        # what waits at a busy worker goes to a free one, and may just have begun
        alone = json.loads((tmp_path / "inline" / "environment.json").read_text())
        assert sum(environment["steps"].values()) >= sum(alone["steps"].values()) > 0
        assert environment["batch_clients"] == alone["batch_clients"]
    if runtime == "superlink":  # a deployment says which run of Flower's it is, of what, and who took part
        assert int(environment["run_id"]) > 0
        assert re.fullmatch("[0-9a-f]{64}", environment["app_hash"])
        counts = [(one["updates"], one["left_out"]) for one in environment["contributions"].values()]
        assert counts == [(2, 0)] * nodes


def test_partial_sums_are_inlines_to_rounding(tmp_path: Path) -> None:
    setting = (
        "strategy=fedexp mask=agreement server_optimizer=adam dataset=digits num_nodes=5 rounds=3 seed=3 "
        "runtime=ray runtime.partial_sums=true"
    )
    Inline().run(setting, 5, tmp_path / "inline")
    assert launch(*setting.split(), "runtime.cpus=2", f"hydra.run.dir={tmp_path / 'ray'}") == 0
    actual, expected = (
        [row.rsplit(",", 1) for row in rows_in(tmp_path / name)[1:]] for name in ("ray", "inline")
    )
    assert [name for name, _ in actual] == [name for name, _ in expected]
    values = [[float(value) for _, value in rows] for rows in (actual, expected)]
    assert values[0] == pytest.approx(values[1], rel=1e-5)


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ("mask=sand", "mask=SandMask"),
        ("mask=magnitude", "mask=MagnitudeMask"),
        ("aggregation=median weighting=uniform", "aggregation=Median"),
        ("strategy=scaffold", "strategy=Scaffold, whose replies carry 'control',"),
        ("strategy=selective validation_size=50", "strategy=SelectiveFedAvg"),
        ("strategy=feddf validation_size=50", "strategy=FedDF, with a step of its own,"),
    ],
)
def test_partial_sums_are_refused_where_each_update_is_needed(
    setting: str,
    named: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("baselines.runtimes.Ray.begin", lambda *_: contextlib.nullcontext())
    where = f"hydra.run.dir={tmp_path}"
    assert launch("runtime=ray", "runtime.partial_sums=true", *setting.split(), where) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith(f"error: runtime.partial_sums=true: {named}")
    assert line.endswith("set runtime.partial_sums=false")
