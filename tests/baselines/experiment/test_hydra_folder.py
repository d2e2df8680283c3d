"""What Hydra writes into a run's folder: its configuration and overrides, and the job's log."""

from pathlib import Path

import pytest
import yaml

from baselines.experiment.messages import warn_once
from helpers.runs import launch

TINY = ("model=softmax", "num_nodes=2", "checkpoint_every=1")
IDLE = "corrections=inexact"  # says that it does nothing


def overrides_in(folder: Path) -> list[str]:
    written: list[str] = yaml.safe_load((folder / "overrides.yaml").read_text())
    return written


def starts_in(run: Path) -> set[str]:
    return {path.name for path in run.glob(".hydra*")}


def test_a_resumed_run_keeps_the_overrides_that_it_was_begun_with(tmp_path: Path) -> None:
    first, longer = (*TINY, "rounds=1"), (*TINY, "rounds=2", "resume=true")
    for start in (first, longer, longer):  # the last finds it finished
        assert launch(*start, f"hydra.run.dir={tmp_path}") == 0
    assert starts_in(tmp_path) == {".hydra", ".hydra.2"}
    assert overrides_in(tmp_path / ".hydra") == [*first]
    assert overrides_in(tmp_path / ".hydra.2") == [*longer]
    for name in ("config.yaml", "hydra.yaml"):
        assert yaml.safe_load((tmp_path / ".hydra" / name).read_text())
    composed = yaml.safe_load((tmp_path / ".hydra" / "config.yaml").read_text())
    assert composed["rounds"] == 1
    assert composed["data_root"].startswith("${oc.env:FLORILEGIUM_DATA")  # a variable's name, not its value


def test_the_log_has_the_warnings_and_errors_of_the_console(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    warn_once.cache_clear()  # another test of this process may have had the same warning
    assert launch(*TINY, IDLE, "rounds=1", f"hydra.run.dir={tmp_path}") == 0
    assert launch(*TINY, "rounds=1", f"hydra.run.dir={tmp_path}") == 2
    log, refused = (tmp_path / "run.log").read_text(), f"{tmp_path} holds a run"
    assert "[flwr][WARNING] - client.corrections.inexact looks after" in log
    assert f"[baselines][ERROR] - {refused}" in log
    assert refused in capfd.readouterr().err


def test_each_run_of_a_sweep_has_its_own(tmp_path: Path) -> None:
    swept = ("-m", *TINY, "rounds=1", "seed=0,1", "nodes_per_round=2,9")
    assert launch(*swept, f"hydra.sweep.dir={tmp_path}", "hydra.sweep.subdir=${hydra:job.num}") == 2
    logs = {path.name: path.read_text() for path in tmp_path.glob("*/*.log")}
    assert set(logs) == {"run.log"}
    texts = [(tmp_path / f"{number}" / "run.log").read_text() for number in range(4)]
    assert [text.count("nodes_per_round=9 is out of range") for text in texts] == [0, 1, 0, 1]
    assert [overrides_in(tmp_path / f"{number}" / ".hydra")[-1] for number in range(4)] == [
        f"nodes_per_round={nodes}" for nodes in (2, 9, 2, 9)
    ]


def test_a_folder_that_takes_no_log_is_a_mistake(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.log").mkdir()
    assert launch(*TINY, f"hydra.run.dir={tmp_path}") == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert "run.log" in line
    assert "set hydra.run.dir" in line
