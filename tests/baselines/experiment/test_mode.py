"""What a run's lines begin with: its number, where its launcher may run others beside it."""

import io

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from omegaconf import open_dict
from rich.console import Console

from baselines.engine import loggers
from baselines.experiment.hydra_callbacks import Sweep, run_prefix
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
    progress = loggers.Progress(3, "run 4: ")
    assert progress.bar is None
    with progress:
        progress.show(1, {"loss": 0.5})
    assert screen.getvalue() == "run 4: round 1/3  loss 0.5\n"


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (30, "round 12/30  left 0:02:30"),
        (50, "round 12/30  accuracy 0.9012  left 0:02:30"),
        (70, "round 12/30  loss 0.4123  accuracy 0.9012  in 0:01:40  left 0:02:30"),
    ],
)
def test_on_a_narrow_terminal_the_round_and_the_time_left_stay(
    width: int, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bar goes first, then the time taken, then what is measured; no number is cut."""
    line = bar_lines(width, monkeypatch)[0]
    assert line == expected


def test_a_sweep_has_a_bar_of_all_its_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = Sweep(6, number=2)
    sweep.count(250, 1.0)  # the other of the first two was finished already
    round_line, run_line = bar_lines(100, monkeypatch, sweep)
    assert "━" in round_line
    assert run_line.startswith("run 3/6  ━")
    assert run_line.endswith("left 0:15:00")  # 3.6 runs, of which each takes 250 s
    assert sweep.runs == pytest.approx(1.4)


def bar_lines(width: int, monkeypatch: pytest.MonkeyPatch, sweep: Sweep | None = None) -> list[str]:
    """Return the lines of a run that has done 12 of its 30 rounds in 100 s, on a terminal so wide."""
    screen, now = io.StringIO(), [1000.0]
    monkeypatch.setattr(loggers.time, "monotonic", lambda: now[0])
    console = Console(
        file=screen, force_terminal=True, width=width, color_system=None, get_time=lambda: now[0]
    )
    monkeypatch.setattr(loggers, "Console", lambda: console)
    progress = loggers.Progress(30, "", sweep)
    with progress:
        for server_round in range(13):
            progress.show(server_round, {"loss": 0.41234, "accuracy": 0.90123})
        now[0] += 100
        assert progress.bar is not None
        lines = [loggers.bar_line(task, width) for task in progress.bar.tasks]
        plain = Console(file=(printed := io.StringIO()), width=width)
        plain.print(*lines)
    return [line.rstrip() for line in printed.getvalue().splitlines()]
