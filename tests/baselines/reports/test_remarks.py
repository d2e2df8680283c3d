"""Remarks: what a reader must be told of the runs in a table; and which runs no pair is made of."""

import json
import warnings
from pathlib import Path

import pytest

from baselines import compare, results
from baselines.errors import UserError
from baselines.experiment import experiment
from helpers.runs import launch, write_run


def with_versions(run: Path, torch: str) -> None:
    environment = json.loads((run / "environment.json").read_text())
    (run / "environment.json").write_text(
        json.dumps(environment | {"versions": {"torch": torch, "numpy": "2"}})
    )


def test_load_says_which_runs_are_not_whole(tmp_path: Path) -> None:
    write_run(tmp_path / "a", "strategy=fedavg", 0, [0.1, 0.2], "finished")
    write_run(tmp_path / "b", "strategy=fedexp", 0, [0.1], "interrupted")
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "metrics.csv").write_text("")
    with warnings.catch_warnings(record=True) as records:
        results.load(tmp_path)
    assert [str(one.message) for one in records] == [
        f"not finished, counted up to its last round (interrupted): {tmp_path}/b",
        f"left out (environment.json is missing): {tmp_path}/c",
    ]
    assert {one.filename for one in records} == {__file__}


def test_load_is_silent_where_all_is_well(tmp_path: Path) -> None:
    write_run(tmp_path / "a", "strategy=fedavg", 0, [0.1, 0.2], "finished")
    with warnings.catch_warnings(action="error"):
        results.load(tmp_path)


@pytest.mark.parametrize(("second", "named"), [("2.9", False), ("2.13", True)])
def test_versions_that_differ_within_a_line_are_named(
    second: str, named: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not those of another setting."""
    for seed, version in enumerate(("2.9", second)):
        write_run(tmp_path / str(seed), f"strategy=fedavg seed={seed}", seed, [0.1], "finished")
        with_versions(tmp_path / str(seed), version)
    write_run(tmp_path / "other", "strategy=fedexp", 0, [0.1], "finished")
    with_versions(tmp_path / "other", "1.0")
    assert compare.main([str(tmp_path)]) == 0
    message = "one line of the table has torch 2.9 and 2.13: their numbers may differ\n"
    assert (message in capsys.readouterr().out) == named


def test_a_run_that_has_not_finished_is_in_no_pair(tmp_path: Path) -> None:
    """Its last round is another: 0.2 after one round is not beside 0.6 after three."""
    for seed, ended in enumerate(("finished", "failed: no memory")):
        write_run(tmp_path / f"a{seed}", f"strategy=fedavg seed={seed}", seed, [0.1, 0.4, 0.6], "finished")
        write_run(
            tmp_path / f"e{seed}",
            f"strategy=fedexp seed={seed}",
            seed,
            [0.2, 0.5, 0.8][: 3 - 2 * seed],
            ended,
        )
    with pytest.warns(UserWarning, match="not finished"):
        frame = results.load(tmp_path)
    (row,) = results.paired(frame, "strategy", "fedavg").to_dict("records")
    assert (row["seeds"], row["mean"]) == (1, pytest.approx(0.2))
    unfinished = frame[frame.run == str(tmp_path / "e1")]
    with pytest.raises(UserError, match="no run has finished"):
        results.paired(unfinished, "strategy", "fedavg")


@pytest.mark.slow
def test_a_number_written_otherwise_makes_no_other_setting(tmp_path: Path) -> None:
    """The default, 0.0, beside 0, in a sweep of 0 and 0.5; the same run twice counts once."""
    for place, momentum in enumerate(("0", "0.5", "0.0", "")):
        own = [f"client.optimizer.momentum={momentum}"] if momentum else []
        more = [f"seed={max(place - 1, 0) % 2}", "rounds=1", "num_nodes=2", "model=softmax"]
        assert launch(*own, *more, f"hydra.run.dir={tmp_path}/{place}") == 0
    with pytest.warns(UserWarning, match="another run has the same setting and seed"):
        frame = results.load(tmp_path)
    seeds = {label: set(rows.seed) for label, rows in frame.groupby("client.optimizer.momentum")}
    assert seeds == {0.0: {0, 1}, 0.5: {0}}
    assert frame.setting.nunique() == 2


def test_a_cluster_of_another_address_makes_no_other_setting(tmp_path: Path) -> None:
    for seed, address in enumerate(("one:6379", "two:6379")):
        overrides = f"runtime=ray runtime.address={address} seed={seed}"
        write_run(tmp_path / str(seed), overrides, seed, [0.1, 0.2], "finished")
        setup = experiment.load(overrides)
        (tmp_path / str(seed) / "config.yaml").write_text(setup.configuration())
        environment = json.loads((tmp_path / str(seed) / "environment.json").read_text())
        (tmp_path / str(seed) / "environment.json").write_text(
            json.dumps(environment | {"setting": setup.setting})
        )
    frame = results.load(tmp_path)
    assert frame.setting.nunique() == 1
    assert set(frame.seed) == {0, 1}
