"""Pairing: a setting that is compared with no baseline is named, with the reason."""

import warnings
from pathlib import Path

import pandas as pd
import pytest

from baselines import compare, results
from baselines.errors import UserError
from baselines.reports import comparison
from baselines.reports.names import setting_name
from baselines.reports.runs import Panel
from helpers.runs import write_run


def with_runs(folder: Path, **settings: tuple[float, ...]) -> Path:
    """Write a run for each seed of each setting; "fedavg 0.1" is FedAvg at that rate."""
    for name, values in settings.items():
        strategy, _, rate = name.partition("_")
        own = f"strategy={strategy}" + (f" client.optimizer.lr={rate}" if rate else "")
        for seed, value in enumerate(values):
            write_run(folder / f"{name}{seed}", f"{own} seed={seed}", seed, [0.1, value], "finished")
    return folder


@pytest.mark.slow
def test_a_setting_without_a_baseline_of_its_rate_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {"fedavg_0.1": (0.5, 0.6), "fedavg_0.01": (0.3, 0.4), "fedadam_0.1": (0.6, 0.8)}
    with_runs(tmp_path, **settings, **{"fedadam_1.0": (0.9, 0.9)})
    assert compare.main([str(tmp_path), "--paired", "fedavg"]) == 0
    line = "in no pair: FedAdam, client.optimizer.lr=1.0 (no baseline has client.optimizer.lr=1.0)"
    assert line in capsys.readouterr().out
    with pytest.warns(UserWarning, match="in no pair: fedadam, client.optimizer.lr=1.0"):
        (row,) = results.paired(results.load(tmp_path), "strategy", "fedavg").to_dict("records")
    assert (row["seeds"], row["mean"]) == (2, pytest.approx(0.15))


def test_that_there_is_no_pair_has_its_reason(tmp_path: Path) -> None:
    """Not that nothing has finished: FedExP has, at rates that FedAvg was not run with."""
    settings = {"fedavg_0.1": (0.5, 0.6), "fedavg_0.01": (0.3, 0.4), "fedexp_1.0": (0.6, 0.8)}
    frame = results.load(with_runs(tmp_path, **settings))
    with pytest.raises(UserError, match=r"fedexp, client.optimizer.lr=1.0 \(no baseline has client"):
        results.paired(frame, "strategy", "fedavg")
    alone = frame[frame.strategy == "fedavg"]
    with pytest.raises(UserError, match="there is no other setting"):
        results.paired(alone[alone.setting == alone.setting.iloc[0]], "strategy", "fedavg")


@pytest.mark.slow
def test_no_seed_in_common_and_no_finished_run_are_reasons(tmp_path: Path) -> None:
    with_runs(tmp_path, fedavg=(0.5, 0.6), fedexp=(0.6, 0.8))
    write_run(tmp_path / "late", "strategy=fedadam seed=7", 7, [0.1, 0.9], "finished")
    write_run(tmp_path / "cut", "strategy=fedyogi seed=0", 0, [0.1], "interrupted")
    with warnings.catch_warnings(record=True) as records:
        frame = results.load(tmp_path)
        results.paired(frame, "strategy", "fedavg")
    messages = [str(one.message) for one in records]
    assert "in no pair: fedadam (no seed in common with fedavg)" in messages
    assert "in no pair: fedyogi (none of its runs has finished with accuracy)" in messages


def test_what_tells_baselines_apart_may_be_no_setting_of_the_other(tmp_path: Path) -> None:
    for eta in (1, 2):
        own = f"strategy=fedavg step_size.eta={eta}"
        write_run(tmp_path / f"avg{eta}", own, 0, [0.1, 0.5], "finished")
    write_run(tmp_path / "exp", "strategy=fedexp", 0, [0.1, 0.6], "finished")
    with pytest.raises(UserError, match=r"fedexp \(baselines differ in step_size.eta, which it has not\)"):
        results.paired(results.load(tmp_path), "strategy", "fedavg")


@pytest.mark.parametrize(
    "wish", ["fedavg", "fedexp", "fedadam", "fedprox", "fedyogi", "fedavgm", "fedadagrad"]
)
def test_of_two_settings_with_a_name_the_one_that_is_written_so_is_the_baseline(
    wish: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = [wish, setting_name(wish)]
    assert written[0] != written[1]
    monkeypatch.setattr(results, "paired", lambda part, setting, baseline, *_: baseline)
    part = pd.DataFrame({"setting": written})
    assert comparison._pair_in(part, wish, [], Panel("test", "accuracy"))[0] == wish
