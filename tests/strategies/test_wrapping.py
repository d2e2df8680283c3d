"""Flower's wrappers of differential privacy around our strategies."""

from typing import Any

import numpy as np
import pytest
from flwr.app import RecordDict
from flwr.serverapp import strategy as flower

from helpers.federation import Federation, answer, model_in, record, sent_model
from strategies import (
    CentralPrivacy,
    Constant,
    EffectiveRank,
    FedAdam,
    FedAvg,
    FedDyn,
    FedExP,
    FedGMA,
    LocalOnly,
    Scaffold,
    Uniform,
)
from strategies.core.strategy import BaseStrategy

START = record({"w": np.zeros(4, np.float32)})
FIXED = flower.DifferentialPrivacyServerSideFixedClipping
ADAPTIVE = flower.DifferentialPrivacyServerSideAdaptiveClipping


def moving(partition_id: int, content: RecordDict) -> RecordDict:
    return answer({"w": sent_model(content)["w"] + np.float32(partition_id + 1)}, 1)


def wrapped(strategy: BaseStrategy, kind: Any = FIXED) -> Any:
    clipping = {"clipping_norm": 1.0} if kind is FIXED else {}
    return kind(strategy, noise_multiplier=0.0, num_sampled_clients=2, **clipping)


@pytest.mark.parametrize("kind", [FIXED, ADAPTIVE])
def test_fedavg_takes_the_mean_of_clipped_updates_as_flowers_does(kind: Any) -> None:
    ours = wrapped(FedAvg(num_nodes=2), kind).start(Federation(moving, 2), START, num_rounds=2)
    stock = wrapped(flower.FedAvg(), kind).start(Federation(moving, 2), START, num_rounds=2)  # type: ignore[arg-type]
    np.testing.assert_allclose(model_in(ours.arrays)["w"], model_in(stock.arrays)["w"], rtol=1e-5)


REFUSED: dict[str, tuple[BaseStrategy, str]] = {
    "fedexp": (FedExP(), "step_size=Extrapolated of FedExP"),
    "fedadam": (FedAdam(), "server_optimizer=Adam of FedAdam"),
    "fedgma": (FedGMA(), "mask=AgreementMask of FedGMA"),
    "feder": (FedAvg(weighting=EffectiveRank()), "weighting=EffectiveRank of FedAvg"),
    "long steps": (FedAvg(step_size=Constant(2.0)), r"step_size=Constant\(eta=2.0\) of FedAvg"),
    "scaffold": (Scaffold(), "the rule of Scaffold"),
    "feddyn": (FedDyn(), "the rule of FedDyn"),
    "local": (LocalOnly(inner=FedAvg()), "the models of LocalOnly"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_noise_does_not_cover_is_refused_before_anyone_trains(name: str) -> None:
    strategy, beyond = REFUSED[name]
    grid = Federation(moving, 2)
    with pytest.raises(ValueError, match=f"^DifferentialPrivacy.*does not cover {beyond}: choose FedAvg"):
        wrapped(strategy).start(grid, START, num_rounds=1)
    assert not grid.requests


def test_so_it_is_in_a_subclass_that_calls_its_parent() -> None:
    class Mine(FedExP):
        def configure_train(self, *given: Any) -> Any:
            return super().configure_train(*given)

    with pytest.raises(ValueError, match="step_size=Extrapolated of Mine"):
        wrapped(Mine()).start(Federation(moving, 2), START, num_rounds=1)
    Mine().start(Federation(moving, 2), START, num_rounds=1)


def test_what_the_line_advises_works() -> None:
    private = FedAvg(num_nodes=2, weighting=Uniform(), privacy=CentralPrivacy(noise_multiplier=0.1))
    result = private.start(Federation(moving, 2), START, num_rounds=1)
    assert result.train_metrics_clientapp[1]["epsilon"]
