"""What a strategy promises of any model: refused in one line where it would not be kept."""

from pathlib import Path

import pytest

from baselines.experiment.messages import logger, warn_once
from helpers.runs import launch, own_options

CODE = """
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from flwr.app import ConfigRecord
from torch import nn

from clients import Correction, Personal
from strategies import FedAvg, Uniform, Weighting


@dataclass(kw_only=True, eq=False)
class Even(FedAvg):
    weighting: Weighting = Uniform()


@dataclass(kw_only=True, eq=False)
class Asking(FedAvg):
    def train_config(self):
        return {**super().train_config(), "shrink": 1.0}


@dataclass(kw_only=True, eq=False)
class Keeping(FedAvg):
    _velocity: torch.Tensor | None = field(default=None, init=False, repr=False)


@dataclass(kw_only=True, eq=False)
class Counting(FedAvg):
    def __post_init__(self):
        super().__post_init__()
        self.seen, self.table = 0, (1, 2)

    def take_step(self, server_round, updates):
        self.seen += 1
        return super().take_step(server_round, updates)


@dataclass(kw_only=True, eq=False)
class Computing(FedAvg):
    @cached_property
    def table(self):
        return [1, 2]

    def take_step(self, server_round, updates):
        assert self.table
        return super().take_step(server_round, updates)


@dataclass(kw_only=True, eq=False)
class Saving(Keeping):
    def state_dict(self):
        return super().state_dict() | {"velocity": self._velocity}


class Returning(Correction):
    def __init__(self, start):
        pass

    def transform_gradients(self, parameters):
        return [p.grad for p in parameters]


@dataclass(kw_only=True, eq=False)
class Pairing(FedAvg):
    def train_config(self):
        return {**super().train_config(), "pair": True, "pair_rate": 2.0}


class Pair(Correction):
    config_key = "pair"
    reads = ("pair_rate",)

    def __init__(self, start):
        assert start.config["pair_rate"] == 2.0


class Plain(FedAvg):
    extra: float = 1.0


@dataclass(kw_only=True, eq=False)
class Anything(FedAvg):
    extra: Any = None


class Vector(Correction):
    def __init__(self, start):
        pass

    def loss_term(self, model, inputs, outputs, targets):
        return outputs.square().mean(1)


class Forgetting(Correction):
    def __init__(self, start):
        start.state["mine"] = ConfigRecord({"seen": 1})


class Careless(Personal):
    def train(self, update):
        update.memory["own"] = ConfigRecord({"seen": 1})
        return update.run()


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(64, 64), nn.Linear(64, 64)
        self.two.weight = self.one.weight
        self.last = nn.Linear(64, 10)

    def forward(self, inputs):
        return self.last(self.two(self.one(inputs.flatten(1))))


class Buffered(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(64, 10)
        self.register_buffer("ema", torch.zeros(64))

    def forward(self, inputs):
        return self.last(inputs.flatten(1) + self.ema)
"""
SELECTIVE = "strategy=selective validation_size=50 strategy.local_rounds=1 rounds=2"
BUFFER = "the model's buffer ema would be masked and optimised as a parameter is: name it, +strategy"
CASES = {
    "strategy=asking": "Asking asks nodes for 'shrink', which no correction reads: name its class in the",
    "strategy=plain +strategy.extra=2.0": "decorate Plain with @dataclass(kw_only=True, eq=False)",
    "strategy=keeping checkpoint_every=1": "Keeping keeps _velocity, which its state_dict does not hold",
    "strategy=counting checkpoint_every=5 rounds=9": "Counting keeps seen, which its state_dict does not",
    "model=tied compression=top_k": "the model's two.weight is a parameter under a second name",
    "model=tied strategy=feddf validation_size=50": "a second name, which would be distilled by itself",
    "model=buffered": f"{BUFFER}.buffer_names=[running_mean,running_var,num_batches_tracked,ema]",
    f"model=buffered {SELECTIVE}": f"{BUFFER}.inner.buffer_names=[",
}
FINE = [
    "strategy=saving checkpoint_every=1",
    "strategy=pairing",
    "strategy=anything +strategy.extra=2.0",
    "strategy=anything +strategy.extra=word",
    "strategy=anything +strategy.extra=[1,2]",
    "strategy=keeping",
    "strategy=counting",
    "strategy=computing checkpoint_every=1 rounds=2",
    "model=tied",
    "model=buffered +strategy.buffer_names=[running_mean,running_var,num_batches_tracked,ema]",
]


@pytest.fixture
def arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    files = {
        "strategy": (
            *("anything", "asking", "computing", "counting", "even", "keeping", "pairing", "plain"),
            "saving",
        ),
        "model": ("tied", "buffered"),
        "corrections": ("forgetting", "returning", "vector"),
        "personal": ("careless",),
    }
    option = own_options(tmp_path, monkeypatch, "slips_lab", CODE)
    for group, names in files.items():
        folder = tmp_path / "conf" / group
        folder.mkdir(parents=True)
        for name in names:
            text = f"_target_: slips_lab.{name.title()}\n"
            if group == "strategy":
                text = f"defaults: [base]\n{text}"
                text += "node_corrections: [{_target_: slips_lab.Pair}]\n" * (name == "pairing")
            if group == "corrections":
                text = f"# @package client.corrections\n{name}: {{{text.strip()}, _partial_: true}}\n"
            if group == "personal":
                text = f"# @package client\npersonal: {{{text.strip()}}}\n"
            (folder / f"{name}.yaml").write_text(text)
    return [option, "rounds=1", "num_nodes=2", f"hydra.run.dir={tmp_path}/run"]


@pytest.mark.slow
@pytest.mark.parametrize("choice", CASES)
def test_it_is_refused(choice: str, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert launch(*arguments, *choice.split()) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert CASES[choice] in line


@pytest.mark.slow
@pytest.mark.parametrize("choice", FINE)
def test_it_is_not(choice: str, arguments: list[str]) -> None:
    assert launch(*arguments, *choice.split()) == 0


@pytest.mark.slow
@pytest.mark.parametrize("batched", ["false", "true"])
def test_a_correction_that_returns_gradients_is_told_to_write_them(
    batched: str, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    own = ["corrections=returning", "max_failed_rounds=1", f"runtime.batch_clients={batched}"]
    assert launch(*arguments, *own) == 1
    assert "Returning returns gradients: write them to each p.grad" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("choice", "line"),
    [
        ("corrections=vector", "Vector.loss_term returns shape [32]: expected one number, e.g. its mean"),
        (
            "corrections=forgetting",
            "Forgetting writes ['mine'] to the node's state: set remembers = True in",
        ),
        (
            "personal=careless",
            "Careless writes ['own'] to the node's state: set remembers = True in its class",
        ),
    ],
)
def test_a_class_that_breaks_its_contract(
    choice: str, line: str, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert launch(*arguments, choice, "node_test_fraction=0.2", "max_failed_rounds=1") == 1
    assert line in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("choice", "warned"), [("", True), ("weighting=examples", False), ("weighting=uniform", False)]
)
def test_the_log_says_which_part_of_its_own_a_strategy_has_lost(
    choice: str, warned: bool, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    monkeypatch.setattr(logger, "warning", lines.append)
    warn_once.cache_clear()
    assert launch(*arguments, "strategy=even", *choice.split()) == 0
    lost = "Even runs with weighting=examples, not with its own Uniform: choose that in the strategy's file"
    assert [line.partition(" (")[0] for line in lines] == [lost] * warned
