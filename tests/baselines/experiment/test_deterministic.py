"""deterministic=true: the same bytes for the same seed, or one line that says why not."""

import os
import shlex
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from baselines import apps
from baselines.bench.by_hand import noise_setting
from baselines.experiment.device import WORKSPACE, deterministic_algorithms
from clients import Classification, LocalTraining
from clients.fast.gradient import get_gradient
from helpers.runs import launch, lines_in

SMALL = "dataset=digits partitioner=iid num_nodes=2 rounds=1 model=softmax"


class Unpooling(nn.Module):
    """A model with an operation for which torch has no deterministic algorithm, on no device."""

    def __init__(self, input_shape: list[int], num_classes: int, **ignored: object) -> None:
        super().__init__()
        self.out = nn.Linear(64, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits [n, classes]."""
        pooled, places = nn.functional.max_pool2d(x, 2, return_indices=True)
        return self.out(nn.functional.max_unpool2d(pooled, places, 2).flatten(1))


class Seen:
    """Notes under which setting a node trains."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.training: list[tuple[bool, str | None]] = []
        train = LocalTraining.__call__

        def noted(*args: object, **more: object) -> dict[str, float]:
            self.training.append(state())
            return train(*args, **more)  # type: ignore[arg-type]

        monkeypatch.setattr(LocalTraining, "__call__", noted)


def state() -> tuple[bool, str | None]:
    return torch.are_deterministic_algorithms_enabled(), os.environ.get(WORKSPACE)


def run(folder: Path, *more: str) -> int:
    return launch(*SMALL.split(), *more, f"hydra.run.dir={folder}")


@pytest.mark.slow
@pytest.mark.parametrize("before", [None, ":16:8"])
def test_it_holds_for_one_run_and_no_longer(
    before: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(WORKSPACE, raising=False)
    if before:
        monkeypatch.setenv(WORKSPACE, before)
    seen = Seen(monkeypatch)
    assert run(tmp_path / "on", "deterministic=true") == 0
    assert seen.training == [(True, before or ":4096:8")] * 2
    assert state() == (False, before)
    assert run(tmp_path / "off") == 0
    assert seen.training[2:] == [(False, before)] * 2


@pytest.mark.slow
def test_it_ends_with_a_run_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object) -> None:
        assert state() == (True, ":4096:8")
        raise OSError("no space left")

    monkeypatch.delenv(WORKSPACE, raising=False)
    monkeypatch.setattr(apps, "run_rounds", broken)
    assert run(tmp_path / "run", "deterministic=true") == 1
    assert state() == (False, None)


@pytest.mark.slow
def test_a_model_without_such_an_algorithm_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = f"model._target_={__name__}.Unpooling"
    assert run(tmp_path / "off", model) == 0
    capsys.readouterr()
    assert run(tmp_path / "on", model, "deterministic=true") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(
        "error: deterministic=true, but the model has no deterministic algorithm (max_unpool"
    )
    assert line.endswith("or deterministic=false")
    assert not (tmp_path / "on" / "metrics.csv").exists()


@pytest.mark.slow
def test_other_mistakes_are_told_as_ever(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path / "a", "deterministic=1") == 2
    assert "deterministic=1 is unknown: expected true or false" in capsys.readouterr().err
    assert run(tmp_path / "b", "deterministic=true", "model=lenet", "model.input_shape=[3,9,9]") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "deterministic" not in line


@pytest.mark.parametrize("is_deterministic", [True, False])
def test_a_run_does_not_find_the_steps_that_the_one_before_recorded(is_deterministic: bool) -> None:
    """On a GPU a recorded step is the eager one to rounding: the second run would begin otherwise."""
    model, task = nn.Linear(2, 2), Classification()
    recorded = get_gradient(model, task)
    with deterministic_algorithms(is_deterministic):
        assert (get_gradient(model, task) is recorded) != is_deterministic


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("batched", ["true", "false"])
def test_the_same_seed_gives_the_same_bytes_on_a_gpu(batched: str, tmp_path: Path) -> None:
    overrides = (
        *shlex.split(noise_setting(1, 28, examples=256, nodes=2)),
        "model=lenet",
        "device=cuda",
        "deterministic=true",
        f"runtime.batch_clients={batched}",
        "rounds=3",
    )
    for name in ("one", "two"):
        assert run(tmp_path / name, *overrides) == 0
    assert lines_in(tmp_path / "one") == lines_in(tmp_path / "two")
