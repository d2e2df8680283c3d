"""A sweep says which run of how many begins; a single run does not."""

import pickle
import re
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.utils import JobReturn, JobStatus
from omegaconf import OmegaConf

from baselines.experiment.hydra_callbacks import SweepProgress, equal_values
from helpers.runs import launch

SHORT = ["model=softmax", "num_nodes=2", "rounds=1"]


def lines(out: str) -> list[str]:
    return re.findall(r"^run \d.*$|.*HYDRA.*", out, flags=re.M)


@pytest.mark.slow
def test_a_sweep_counts_its_runs(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    swept = ["strategy=fedavg,fedexp", "seed=range(1,3)", *SHORT]
    assert launch("-m", *swept, f"hydra.sweep.dir={tmp_path}") == 0
    assert lines(capfd.readouterr().out) == [
        "run 1 of 4: strategy=fedavg seed=1",
        "run 2 of 4: strategy=fedavg seed=2",
        "run 3 of 4: strategy=fedexp seed=1",
        "run 4 of 4: strategy=fedexp seed=2",
    ]


@pytest.mark.slow
def test_equal_values_are_named_before_the_first_run(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    swept = ["client.optimizer.lr=0.1,0.10,0.2,1e-1", "strategy=fedavg,'fedavg'", "seed=1,2", "resume=true"]
    assert launch("-m", *swept, *SHORT, f"hydra.sweep.dir={tmp_path}") == 0
    first, second, run, *_ = capfd.readouterr().out.splitlines()
    assert first == (
        "client.optimizer.lr: 0.1, 0.10, 1e-1 are equal, so that these runs are one: leave all but one out"
    )
    assert second.startswith("strategy: fedavg, 'fedavg' are equal")
    assert run.startswith("run 1 of 16: ")


@pytest.mark.parametrize(
    "swept", ["a=true,1", "a=1,'1'", "a=[1,2],[1,3]", "a=null,none", "a=1,2", "a=range(3)"]
)
def test_others_are_not(swept: str) -> None:
    varied = OverridesParser.create().parse_overrides([swept])
    assert not list(equal_values(varied))


@pytest.mark.slow
def test_what_only_the_sweeper_can_count_has_no_total(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert launch("-m", "model=glob(softmax)", *SHORT[1:], f"hydra.sweep.dir={tmp_path}") == 0
    assert lines(capfd.readouterr().out) == ["run 1: model=softmax"]


@pytest.mark.slow
def test_a_setting_that_is_another_one_is_no_hindrance(
    tmp_path: Path, recwarn: pytest.WarningsRecorder, capfd: pytest.CaptureFixture[str]
) -> None:
    same = "client.batch_size=${.local_epochs}"
    assert launch("-m", "strategy=fedavg,fedexp", same, *SHORT, f"hydra.sweep.dir={tmp_path}") == 0
    assert lines(capfd.readouterr().out) == ["run 1 of 2: strategy=fedavg", "run 2 of 2: strategy=fedexp"]
    assert not [w for w in recwarn if "SweepProgress" in str(w.message)]


@pytest.mark.slow
def test_a_single_run_is_not_counted(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert launch(*SHORT, f"hydra.run.dir={tmp_path}") == 0
    assert lines(capfd.readouterr().out) == []


def test_a_random_search_counts_its_trials(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hydra = {
        "sweep": {"dir": str(tmp_path)},
        "sweeper": {"n_trials": 60, "params": {"client.optimizer.lr": "tag(log, interval(0.1, 1))"}},
        "launcher": {"_target_": "hydra._internal.core_plugins.basic_launcher.BasicLauncher"},
    }
    job = {"overrides": {"task": ["client.optimizer.lr=0.2", "rounds=3"]}, "job": {"num": 1}}
    progress = SweepProgress()
    progress.on_multirun_start(OmegaConf.create({"hydra": hydra | {"overrides": {"task": ["rounds=3"]}}}))
    progress.on_job_start(OmegaConf.create({"hydra": job}))
    assert capsys.readouterr().out == "run 2 of 60: client.optimizer.lr=0.2\n"


def test_runs_beside_each_other_are_counted_as_they_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each ends in a process of its own, of which the one that started the sweep knows nothing."""
    settings = {
        "sweep": {"dir": str(tmp_path)},
        "sweeper": {"params": None},
        "launcher": {"_target_": "hydra_plugins.hydra_joblib_launcher.joblib_launcher.JoblibLauncher"},
        "overrides": {"task": ["seed=0,1,2"]},
    }
    here = SweepProgress()
    here.on_multirun_start(OmegaConf.create({"hydra": settings}))
    elsewhere = pickle.loads(pickle.dumps(here))
    for number, status in ((1, JobStatus.COMPLETED), (0, JobStatus.FAILED)):
        job = OmegaConf.create({"hydra": settings | {"job": {"num": number}}})
        elsewhere.on_job_end(job, JobReturn(status=status))
    here.on_multirun_end(OmegaConf.create({"hydra": settings}))
    lines = re.sub(r"\d:\d\d:\d\d", "TIME", capsys.readouterr().out).splitlines()
    assert lines == [
        "1 of 3 runs done in TIME, about TIME left: run 2 finished",
        "2 of 3 runs done in TIME, about TIME left: run 1 failed",
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["multirun.yaml"]
