"""What each strategy tells whoever runs it: how many models, what nodes keep, what it must be given."""

from dataclasses import dataclass

import pytest
import torch

from strategies import (
    FedAvg,
    FedExP,
    FedMeta,
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
from strategies.parts.erosion import Erosion
from strategies.round.evaluation import SuiteStrategy

NOTHING_MORE = (1, False, False)
# strategy, (models to evaluate with 7 nodes, nodes keep a state, needs validation examples)
PROMISES: list[tuple[SuiteStrategy, tuple[int, bool, bool]]] = [
    (FedAvg(), NOTHING_MORE),
    (FedExP(average_last=2), NOTHING_MORE),
    (WeightErosion(weighting=Erosion(0)), NOTHING_MORE),
    (Scaffold(), (1, True, False)),
    (Grouped(inner=FedAvg()), (7, False, False)),
    (LocalOnly(inner=Scaffold()), (7, True, False)),
    (WeightErosionForAll(inner=WeightErosion(weighting=Erosion(0))), (7, False, False)),
    (SelectiveFedAvg(inner=FedAvg()), (7, False, True)),
    (FedMeta(), (1, False, True)),
    (FedAvg(compression=TopK()), (1, True, False)),
    (FedAvg(compression=Sketch()), NOTHING_MORE),
    (LocalOnly(inner=FedAvg(compression=TopK())), (7, True, False)),
]


@pytest.mark.parametrize(("strategy", "expected"), PROMISES, ids=[each.name for each, _ in PROMISES])
def test_models_states_and_validation(strategy: SuiteStrategy, expected: tuple[int, bool, bool]) -> None:
    assert (strategy.most_models(7), strategy.nodes_remember, strategy.needs_validation) == expected


def test_selective_needs_nothing_more_once_it_can_validate() -> None:
    strategy = SelectiveFedAvg(inner=FedAvg())
    strategy.validate_with(lambda arrays: torch.ones(2, dtype=torch.bool))
    assert not strategy.needs_validation


def test_no_mask_leaves_every_coordinate_as_it_is() -> None:
    factors = torch.zeros(3)
    NoMask().factor(torch.randn(2, 3), torch.zeros(2, 3), factors)
    assert factors.tolist() == [1, 1, 1]


def test_what_the_messages_ask_of_each_node() -> None:
    variance = {"gradient-variance": True}
    assert FedAvg().asks() == {}
    assert FedAvg(weighting=InverseVariance()).asks() == variance
    assert FedProx(mu=0.5, weighting=InverseVariance()).asks() == {"proximal-mu": 0.5, **variance}
    assert Scaffold(option=1).asks() == {"control-option": 1}
    assert Grouped(inner=Scaffold()).asks() == {"control-option": 2}
    sketch = {"compression": "sketch", "compression-share": 0.5}
    sketch |= {"compression-error_feedback": False, "compression-rotate": False}
    assert FedProx(mu=0.5, compression=Sketch(0.5, None)).asks() == {"proximal-mu": 0.5, **sketch}


@pytest.mark.parametrize(
    ("kind", "name", "instead"),
    [
        (FedAvg, "fraction_train", "nodes_per_round"),
        (FedExP, "min_train_nodes", "min_replies"),
        (Scaffold, "min_available_nodes", "num_nodes"),
        (FedProx, "proximal_mu", "set mu"),
        (Grouped, "fraction_evaluate", "federated_evaluation"),
    ],
)
def test_a_name_of_flowers_is_answered_with_ours(kind: type, name: str, instead: str) -> None:
    with pytest.raises(TypeError, match=f"{kind.__name__} has no {name}, a name of Flower's: .*{instead}"):
        kind(**{name: 2})


def test_a_strategy_of_ones_own_may_use_such_a_name() -> None:
    @dataclass(kw_only=True, eq=False)
    class Mine(FedAvg):
        tau: float = 0.5

    assert Mine(tau=0.1).tau == 0.1
    with pytest.raises(TypeError, match="unexpected keyword argument 'unheard_of'"):
        Mine(unheard_of=1)  # type: ignore[call-arg]
