"""The ClientApp of every runtime: only for the server's own code, and light to start."""

import subprocess
import sys
from pathlib import Path

import pytest
from flwr.app import ConfigRecord, Message, RecordDict

from baselines.apps import client_app_of
from baselines.experiment import experiment, identity
from baselines.grids.inline import InlineGrid
from helpers.checkout import ROOT
from strategies.shared import protocol

pytestmark = pytest.mark.runtime

OVERRIDES = "num_nodes=2 model=softmax partitioner=iid"


def trained(source_hash: str) -> Message:
    grid = InlineGrid(client_app_of(OVERRIDES), 2)
    config = ConfigRecord({protocol.SERVER_ROUND: 1, protocol.SOURCE_HASH: source_hash})
    arrays = experiment.load(OVERRIDES).initial_arrays()
    content = RecordDict({protocol.ARRAYS: arrays, protocol.CONFIG: config})
    (reply,) = grid.send_and_receive([Message(content, grid.get_node_ids()[1], "train")])
    return reply


def test_a_node_works_for_a_server_with_the_same_code() -> None:
    assert not trained(identity.source_hash()).has_error()


def test_a_node_refuses_a_server_with_other_code() -> None:
    reply = trained("0123456789abcdef")
    assert reply.has_error()
    assert f"this node's code ({ROOT}, {identity.source_hash()}) is not the server's" in reply.error.reason


def test_the_hash_covers_code_and_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hashes = []
    for name, text in (("strategies/a.py", "1"), ("strategies/a.py", "2"), ("conf/a.yaml", "3")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
        monkeypatch.setattr(identity, "ROOT", tmp_path)
        hashes.append(identity.source_hash.__wrapped__())
    assert len(set(hashes)) == 3


@pytest.mark.slow
def test_a_client_process_does_not_import_what_only_the_server_needs() -> None:
    """A deployment starts a process for every message: what it imports is paid each time."""
    heavy = {"matplotlib", "pandas", "ray", "sklearn", "flwr_datasets", "datasets", "torchvision"}
    code = f"import sys, baselines.apps; print(sorted({heavy!r} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True
    )
    assert done.stdout.strip() == "[]"
