"""The architecture page: its picture is its table's, and one round runs through its files."""

import json
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from baselines.experiment.overrides import ROOT

PICTURE = runpy.run_path(str(ROOT / "docs" / "site" / "picture.py"))
PAGE = (ROOT / "docs" / "development" / "architecture.md").read_text(encoding="utf-8")
ROUND = """
import json, runpy, sys, threading
root, folder, files, rounds = sys.argv[1] + "/", sys.argv[2], set(), set()
sys.path.insert(0, root)
def note(frame, event, argument):
    path, code = frame.f_code.co_filename, frame.f_code
    if event == "call" and path.startswith(root) and code.co_name != "<module>" and code.co_flags & 1:
        files.add(path[len(root):])
        if rounds or code.co_name == "run_rounds":
            rounds.add(path[len(root):])
sys.argv = ["baselines.run", "dataset=digits", "rounds=2", "num_nodes=3", f"hydra.run.dir={folder}/run"]
threading.setprofile(note)
sys.setprofile(note)
try:
    runpy.run_module("baselines.run", run_name="__main__", alter_sys=True)
except SystemExit as stop:
    assert not stop.code, stop.code
finally:
    sys.setprofile(None)
    threading.setprofile(None)
ours = ("strategies/", "clients/", "baselines/")
print(json.dumps([sorted(f for f in some if f.startswith(ours)) for some in (files, rounds)]))
"""
MOST, MOST_IN_ROUNDS = 61, 43  # files; whoever adds one to the road of FedAvg says so here


def test_the_picture_is_that_of_the_table() -> None:
    assert (ROOT / "docs" / "development" / "round.svg").read_text(encoding="utf-8") == PICTURE["draw"](
        PAGE
    )
    assert 10 <= len(PICTURE["steps"](PAGE)) <= 15


def test_every_file_that_it_names_exists() -> None:
    named = re.findall(r"`((?:strategies|clients|baselines|conf)/[\w./]+\.(?:py|yaml))`", PAGE)
    assert len(named) > 20
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.slow
def test_a_round_of_fedavg_runs_through_its_files(tmp_path: Path) -> None:
    command = [sys.executable, "-c", ROUND, str(ROOT), str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
    files, rounds = map(set, json.loads(done.stdout.splitlines()[-1]))
    assert [file for _, _, file, _ in PICTURE["steps"](PAGE) if file not in files] == []
    assert len(files) <= MOST
    assert len(rounds) <= MOST_IN_ROUNDS
