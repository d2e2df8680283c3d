"""What each strategy tells whoever runs it: how many models, what nodes keep, what it must be given."""

import pytest
import torch

from helpers.server_data import Functions
from strategies import (
    IFCA,
    CoDistillation,
    Distillation,
    FedAvg,
    FedDF,
    FedExP,
    FedMeta,
    FedProto,
    FedProx,
    Grouped,
    InverseVariance,
    LocalOnly,
    NoMask,
    Scaffold,
    SelectiveFedAvg,
    Sketch,
    TopK,
    WeightErosion,
    WeightErosionForAll,
)
from strategies.core.strategy import BaseStrategy
from strategies.parts.weighting import Erosion

NOTHING_MORE = (1, False, False)
# strategy, (models to evaluate with 7 nodes, nodes keep a state, needs validation examples)
PROMISES: list[tuple[BaseStrategy, tuple[int, bool, bool]]] = [
    (FedAvg(), NOTHING_MORE),
    (FedExP(average_last=2), NOTHING_MORE),
    (WeightErosion(weighting=Erosion(0)), NOTHING_MORE),
    (Scaffold(), (1, True, False)),
    (Grouped(inner=FedAvg()), (7, False, False)),
    (LocalOnly(inner=Scaffold()), (7, True, False)),
    (WeightErosionForAll(inner=WeightErosion(weighting=Erosion(0))), (7, False, False)),
    (SelectiveFedAvg(inner=FedAvg()), (7, False, True)),
    (IFCA(num_models=3), (3, False, False)),
    (FedProto(), (7, False, False)),
    (FedMeta(), (1, False, True)),
    (FedDF(), (1, False, True)),
    (FedDF(distillation=Distillation(steps=0)), NOTHING_MORE),
    (CoDistillation(inner=FedAvg()), (7, False, True)),
    (FedAvg(compression=TopK()), (1, True, False)),
    (FedAvg(compression=Sketch()), NOTHING_MORE),
    (LocalOnly(inner=FedAvg(compression=TopK())), (7, True, False)),
]


@pytest.mark.parametrize(("strategy", "expected"), PROMISES, ids=[each.name for each, _ in PROMISES])
def test_models_states_and_validation(strategy: BaseStrategy, expected: tuple[int, bool, bool]) -> None:
    assert (strategy.max_num_models(7), strategy.has_stateful_nodes, strategy.needs_server_data) == expected


def test_selective_needs_nothing_more_once_it_can_validate() -> None:
    strategy = SelectiveFedAvg(inner=FedAvg())
    strategy.set_server_data(Functions())
    assert not strategy.needs_server_data


def test_no_mask_leaves_every_coordinate_as_it_is() -> None:
    factors = torch.zeros(3)
    NoMask().mask_values(torch.randn(2, 3), torch.zeros(2, 3), factors)
    assert factors.tolist() == [1, 1, 1]


def test_what_the_messages_ask_of_each_node() -> None:
    variance = {"gradient-variance": True}
    assert FedAvg().train_config() == {}
    assert FedAvg(weighting=InverseVariance()).train_config() == variance
    assert FedProx(mu=0.5, weighting=InverseVariance()).train_config() == {"proximal-mu": 0.5, **variance}
    assert IFCA(num_models=3).train_config() == {"num-models": 3}
    assert FedProto(strength=0).train_config() == {"prototypes": True, "prototype-weight": 0}
    assert Scaffold(option=1).train_config() == {"control-option": 1}
    assert Grouped(inner=Scaffold()).train_config() == {"control-option": 2}
    sketch = {"compression": "sketch", "compression-share": 0.5}
    sketch |= {"compression-error_feedback": False, "compression-rotate": False}
    assert FedProx(mu=0.5, compression=Sketch(0.5, None)).train_config() == {"proximal-mu": 0.5, **sketch}
