"""What a run's lines begin with: its number, where its launcher may run others beside it."""

import io

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from omegaconf import open_dict
from rich.console import Console

from baselines.engine import loggers
from baselines.experiment.hydra_callbacks import run_prefix
from baselines.experiment.overrides import CONF


@pytest.mark.parametrize(
    ("how", "launcher", "named"),
    [
        ("RUN", "hydra._internal.core_plugins.basic_launcher.BasicLauncher", ""),
        ("MULTIRUN", "hydra._internal.core_plugins.basic_launcher.BasicLauncher", ""),
        ("MULTIRUN", "hydra_plugins.hydra_joblib_launcher.joblib_launcher.JoblibLauncher", "run 4: "),
    ],
)
def test_a_run_that_may_have_others_beside_it_is_named(
    how: str, launcher: str, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with initialize_config_dir(config_dir=str(CONF), version_base="1.3"):
        cfg = compose("config", return_hydra_config=True)
    with open_dict(cfg):
        cfg.hydra.mode, cfg.hydra.launcher._target_ = how, launcher
        cfg.hydra.job.num, cfg.hydra.job.id = 3, "3"
        cfg.hydra.runtime.output_dir = "."
    monkeypatch.setattr(HydraConfig.instance(), "cfg", cfg)
    assert run_prefix() == named


def test_without_hydra_a_run_has_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HydraConfig.instance(), "cfg", None)
    assert run_prefix() == ""


def test_several_runs_share_a_terminal_without_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(loggers, "Console", lambda: Console(file=screen, force_terminal=True))
    assert loggers.Progress(3).bar is not None
    shown = loggers.Progress(3, "run 4: ")
    assert shown.bar is None
    with shown:
        shown.show(1, {"loss": 0.5})
    assert screen.getvalue() == "run 4: round 1/3  loss 0.5\n"
