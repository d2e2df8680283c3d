"""Configurations that differ in values alone share their options; each is what Hydra composes as a whole."""

import shlex
from collections.abc import Iterator

import hydra
import pytest
from omegaconf import OmegaConf

from baselines.experiment import config
from helpers.checkout import ROOT


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[list[str]]]:
    """Yield the overrides of each configuration that Hydra composes, none of them known before."""
    taken = []

    def compose(name: str, overrides: list[str], return_hydra_config: bool = False) -> object:
        taken.append(overrides)
        return hydra.compose(name, overrides=overrides, return_hydra_config=return_hydra_config)

    monkeypatch.setattr(config, "compose", compose)
    for function in (config._compose_options, config.compose_unchecked):
        function.cache_clear()
    yield taken
    config.compose_unchecked.cache_clear()


def as_hydra(overrides: str) -> str:
    with config.initialize_hydra():
        return OmegaConf.to_yaml(hydra.compose("config", overrides=shlex.split(overrides)))


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "overrides",
    [
        "rounds=3 strategy=fedgma num_nodes=7 mask.tau=0.2",  # what stands between and before options
        "mask.tau=0.2 mask.tau=0.3 strategy=fedgma strategy=fedgma",
        "corrections=[proximal,fedsam] client.corrections.proximal.mu=0.5 client.optimizer.lr=${num_nodes}",
        "model=lenet client.optimizer={lr:0.25} client.optimizer.lr=0.5",  # a part of values
        "strategy=fedavg +strategy={min_replies:2} strategy.min_replies=3",
        "mask=agreement mask={tau:0.7} mask.tau=0.1 mask={tau:0.2}",  # values of a group, in their order
    ],
)
def test_it_is_what_hydra_composes(overrides: str) -> None:
    assert OmegaConf.to_yaml(config.compose_unchecked(overrides).cfg) == as_hydra(overrides)


def test_options_are_composed_once_and_values_stay_apart(calls: list[list[str]]) -> None:
    first = config.compose_unchecked("strategy=fedgma mask.tau=0.2").cfg
    second = config.compose_unchecked("rounds=3 strategy=fedgma").cfg
    assert calls == [["strategy=fedgma"]]
    assert (first.mask.tau, second.mask.tau, second.rounds) == (0.2, 0.4, 3)
    first.mask.tau = 0.9  # nor does what is done to a configuration change another
    assert config.compose_unchecked("strategy=fedgma").cfg.mask.tau == 0.4


def test_options_of_the_users_own_are_read_each_time(calls: list[list[str]]) -> None:
    """Their files may change while a notebook runs."""
    own = f"hydra.searchpath=[file://{ROOT}/examples/mylab/conf] dataset=wine"
    for rounds in (1, 2):
        assert config.compose_unchecked(f"{own} rounds={rounds}").cfg.rounds == rounds
    assert len(calls) == 2
