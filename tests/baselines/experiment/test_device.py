"""Which device a run takes, and what it says of it, with an accelerator and without."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from baselines.errors import UserError
from baselines.experiment import device
from helpers.elsewhere import DEVICE, Accelerator
from helpers.runs import launch

CARD = SimpleNamespace(
    get_device_name=lambda _: "a card",
    reset_peak_memory_stats=lambda: None,
    max_memory_allocated=lambda _: 4096,
)
SETTING = ["num_nodes=2", "rounds=1", "model=softmax"]


@pytest.fixture(params=["cuda", "mps", "xpu"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Let torch claim an accelerator of this kind."""
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device(request.param))
    monkeypatch.setattr(torch, "get_device_module", lambda _: CARD)
    return str(request.param)


@pytest.fixture
def nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)


def test_auto_takes_what_torch_finds(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = []
    made = torch.empty(0)
    monkeypatch.setattr(torch, "empty", lambda *_, device: kinds.append(str(device)) or made)
    device.device_of("auto")
    assert kinds == [kind]
    assert device.describe_choice("auto") == f"device=auto: {kind} (a card)"


@pytest.mark.usefixtures("kind")
def test_an_idle_gpu_is_named() -> None:
    assert device.describe_choice("cpu") == "device=cpu: a card is idle; device=auto uses it"
    assert device.peak_memory(torch.device("xpu")) == 4096
    assert device.peak_memory(torch.device("cpu")) is None


@pytest.mark.usefixtures("nothing")
def test_without_one_auto_is_the_cpu() -> None:
    assert device.device_of("auto") == torch.device("cpu")
    assert device.describe_choice("auto") == "device=auto: cpu, as torch sees no GPU here"
    assert device.describe_choice("cpu") is None
    with pytest.raises(UserError, match="device=abacus is not available"):
        device.device_of("abacus")


def test_a_kind_without_counters_is_named_by_its_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_device_module", lambda _: SimpleNamespace())  # as torch.mps
    assert device.name_of(torch.device("mps")) == "mps"
    assert device.peak_memory(torch.device("mps")) is None
    device.watch_memory(torch.device("mps"))


def test_a_model_in_float64_is_refused_where_there_is_none() -> None:
    exact, usual = torch.nn.Linear(2, 1).double(), torch.nn.Linear(2, 1)
    assert device.place_model(exact, torch.device("cpu")) is exact
    with Accelerator():
        assert device.place_model(usual, DEVICE).weight.device == DEVICE
        with pytest.raises(UserError, match=r"has no float64.*set device=cpu, or float32"):
            device.place_model(exact, DEVICE)


@pytest.mark.slow
@pytest.mark.usefixtures("nothing")
def test_a_run_tells_its_device_and_its_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert launch(*SETTING, "device=auto", f"hydra.run.dir={tmp_path}") == 0
    assert "device=auto: cpu, as torch sees no GPU here" in capsys.readouterr().out
    environment = json.loads((tmp_path / "environment.json").read_text())
    assert environment["hardware"]["device"] == "cpu"
    assert environment["hardware"]["gpu"] is None
    assert environment["gpu_peak_bytes"] is None
    rows = (tmp_path / "metrics.csv").read_text().splitlines()
    steps = next(float(row.rpartition(",")[2]) for row in rows if ",local_steps," in row)
    assert sum(environment["steps"].values()) > steps  # a round's mean over two nodes
    assert environment["steps"]["captured"] == 0
