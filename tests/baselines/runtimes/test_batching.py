"""Whether nodes train batched: who decides it, what a run says of it; measuring leaves no trace."""

import json
import random
import shlex
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from baselines.experiment import experiment
from baselines.runtimes import batching, measuring
from clients import LocalTraining
from helpers.agreement.ways import CONF
from helpers.runs import launch, lines_in

MLP = "dataset=digits partitioner=dirichlet model=mlp model.hidden=8 num_nodes=4"
CUDA, CPU = torch.device("cuda"), torch.device("cpu")
OURS = shlex.quote(f'hydra.searchpath=["file://{CONF}"]')


def run(folder: Path, overrides: str) -> list[str]:
    """Run it as the command does; return the lines of metrics.csv."""
    assert launch(*shlex.split(overrides), f"hydra.run.dir={folder}") == 0
    return lines_in(folder)


def read_choice(folder: Path) -> dict[str, object]:
    choice: dict[str, object] = json.loads((folder / "environment.json").read_text())["batch_clients"]
    return choice


def measures(monkeypatch: pytest.MonkeyPatch, times: tuple[float, float] | str | None) -> None:
    """Let measuring find this; None: nothing may be measured."""

    def seconds_of(*_: object) -> object:
        assert times is not None, "measured"
        return times

    monkeypatch.setattr(measuring, "seconds_of", seconds_of)


def on(
    monkeypatch: pytest.MonkeyPatch, device: torch.device, *, deterministic: bool = False, size: int = 10
) -> None:
    """Let any overrides name an experiment with a model of this size on this device."""
    model = nn.Linear(size, 1, bias=False, device="meta")
    settings = SimpleNamespace(resume=False)
    stand_in = SimpleNamespace(
        device=device, deterministic=deterministic, node_model=model, settings=settings
    )
    monkeypatch.setattr(experiment, "load", lambda _: stand_in)


@pytest.mark.parametrize(
    ("seconds", "batched"), [((1.0, 0.5), True), ((1.0, 0.96), False), ((1.0, 3.0), False)]
)
def test_the_faster_way_is_taken_and_a_tie_keeps_the_bits(
    seconds: tuple[float, float], batched: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    on(monkeypatch, CUDA)
    measures(monkeypatch, seconds)
    choice = batching.choose_batching("auto", "", tmp_path, None)
    assert choice.batched == batched
    assert choice.describe()["batch_clients"]["seconds"] == dict(
        zip(("one_by_one", "batched"), seconds, strict=True)
    )


def test_where_bits_are_promised_auto_never_asks_the_clock(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    measures(monkeypatch, None)
    on(monkeypatch, CPU)
    assert not batching.choose_batching("auto", "", tmp_path, None).batched
    for size, batched in ((10, True), (2_000_000, False)):
        on(monkeypatch, CUDA, deterministic=True, size=size)
        assert batching.choose_batching("auto", "", tmp_path, None).batched == batched


def test_what_cannot_be_batched_is_not(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    on(monkeypatch, CUDA)
    measures(monkeypatch, measuring.CANNOT_MEASURE)
    choice = batching.choose_batching("auto", "", tmp_path, None)
    assert (choice.batched, choice.why, choice.seconds) == (False, measuring.CANNOT_MEASURE, None)


@pytest.mark.slow
@pytest.mark.parametrize(("seconds", "as_by"), [((1.0, 0.5), "true"), ((0.5, 1.0), "false")])
def test_a_measured_run_is_reproduced_by_its_choice(
    seconds: tuple[float, float],
    as_by: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    measures(monkeypatch, seconds)
    lines: list[str] = []
    monkeypatch.setattr(batching.logger, "info", lambda text, *more: lines.append(text % more))
    actual = run(tmp_path / "measured", f"{MLP} rounds=2 runtime.batch_clients=measured")
    (line,) = [one for one in lines if "batch_clients" in one]
    way = "batched" if as_by == "true" else "one by one"
    assert line == (
        f"runtime.batch_clients=measured: nodes train {way} (a shortened round takes "
        f"{seconds[1]:g} s batched, {seconds[0]:g} s one by one)"
    )
    assert read_choice(tmp_path / "measured")["batched"] == (as_by == "true")
    assert actual == run(tmp_path / as_by, f"{MLP} rounds=2 runtime.batch_clients={as_by}")


@pytest.mark.slow
def test_a_resumed_run_keeps_the_choice_of_its_beginning(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    setting = f"{MLP} checkpoint_every=1 runtime.batch_clients"
    whole = run(tmp_path / "whole", f"{setting}=true rounds=3")
    measures(monkeypatch, (1.0, 0.5))
    run(tmp_path / "parts", f"{setting}=measured rounds=2")
    before = read_choice(tmp_path / "parts")
    measures(monkeypatch, None)
    assert run(tmp_path / "parts", f"{setting}=measured rounds=3 resume=true") == whole
    assert read_choice(tmp_path / "parts") == before


@pytest.mark.slow
def test_a_run_that_begins_anew_is_measured_anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What another run has left in the folder decides nothing."""
    measures(monkeypatch, (1.0, 0.5))
    setting = f"{MLP} rounds=1 checkpoint_every=1 runtime.batch_clients=measured"
    run(tmp_path, setting)
    measures(monkeypatch, (0.5, 1.0))
    run(tmp_path, f"{setting} resume=false")
    assert read_choice(tmp_path)["batched"] is False


@pytest.mark.slow
def test_a_killed_run_has_written_its_choice_down(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """environment.json has it from the first moment on: nothing is written when a process is killed."""
    seen: list[object] = []
    monkeypatch.setattr(
        "baselines.engine.rounds.Rounds.train", lambda *_: seen.append(read_choice(tmp_path))
    )
    launch(*shlex.split(f"{MLP} rounds=1 runtime.batch_clients=true"), f"hydra.run.dir={tmp_path}")
    assert seen == [{"asked": True, "batched": True, "why": "as asked"}]


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "setting",
    [
        MLP,
        f"{MLP} strategy=scaffold client.local_epochs=2 client.stragglers=0.5",
        f"{OURS} dataset=images num_nodes=3 model=counting client.batch_size=8",
        f"{OURS} dataset=images num_nodes=3 model=layer_drop client.batch_size=8",
        f"{OURS} dataset=images num_nodes=3 model=dropping client.batch_size=8 client.local_steps=3 "
        "client.local_epochs=null",
        f"{MLP} strategy=selective validation_size=50 strategy.local_rounds=1",
        "dataset=digits num_nodes=5 nodes_per_round=1 model=softmax",
    ],
    ids=["mlp", "scaffold", "counting", "drawing", "dropout", "selective", "alone"],
)
def test_measuring_leaves_no_trace(setting: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Not in the model's attributes, the draws, the nodes' states, nor in what was counted."""
    monkeypatch.setattr(measuring, "WARM_UP_SECONDS", 0.0)
    experiment.load.cache_clear()
    random.seed(9)
    actual = run(tmp_path / "measured", f"{setting} rounds=2 runtime.batch_clients=measured")
    chosen = read_choice(tmp_path / "measured")
    drawn = random.random()
    experiment.load.cache_clear()
    random.seed(9)
    as_by = str(chosen["batched"]).lower()
    assert run(tmp_path / "asked", f"{setting} rounds=2 runtime.batch_clients={as_by}") == actual
    assert random.random() == drawn
    if "seconds" in chosen:
        assert all(seconds > 0 for seconds in chosen["seconds"].values())  # type: ignore[attr-defined]
    steps = [
        sum(json.loads((tmp_path / name / "environment.json").read_text())["steps"].values())
        for name in ("measured", "asked")
    ]
    assert steps[0] == steps[1]


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch.cuda.is_available() is false")
def test_auto_measures_on_a_gpu(tmp_path: Path) -> None:
    """And the run says what it has used there."""
    run(tmp_path, f"{MLP} rounds=2 device=cuda client.local_epochs=3")
    assert read_choice(tmp_path)["seconds"]
    environment = json.loads((tmp_path / "environment.json").read_text())
    assert environment["gpu_peak_bytes"] > 0
    assert environment["steps"]["captured"] > 0
    assert environment["hardware"]["gpu"] == torch.cuda.get_device_name()


@pytest.mark.parametrize(
    ("given", "sizes", "expected"),
    [
        ({"local_epochs": None, "local_steps": 500}, [100, 7], (None, 10, 1.0)),
        ({"local_epochs": None, "local_steps": 3}, [100, 7], (None, 3, 1.0)),
        ({"local_epochs": 5, "batch_size": 10}, [400, 100], (1, None, 0.25)),
        ({"local_epochs": 5, "batch_size": 10}, [30, 8], (3, None, 1.0)),
        ({"local_epochs": 5, "batch_size": None}, [400], (5, None, 1.0)),
        ({"local_epochs": 50, "batch_size": None}, [400], (10, None, 1.0)),
        ({"local_epochs": 4, "stragglers": 0.5}, [32], (4, None, 1.0)),
    ],
)
def test_a_shortened_round_keeps_proportions(
    given: dict[str, object], sizes: list[int], expected: tuple[int | None, int | None, float]
) -> None:
    training = LocalTraining(optimizer=lambda p: torch.optim.SGD(p, lr=0.1), **given)  # type: ignore[arg-type]
    short, share = measuring.shorten_training(training, sizes)
    assert (short.local_epochs, short.local_steps, share) == expected
    assert short.stragglers == 0
