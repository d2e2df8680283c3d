"""The ends of every range: the last value that is allowed, and the first that is not."""

from collections.abc import Callable
from typing import Any

import pytest

from strategies import (
    Adam,
    AndMask,
    Constant,
    EffectiveRank,
    Erosion,
    Extrapolated,
    Fair,
    FedAvg,
    FedGMA,
    Momentum,
    SandMask,
    Scaffold,
    SelectiveFedAvg,
    WeightErosion,
)
from strategies.shared.checks import require, require_count

Build = Callable[[Any], object]
RANGES: dict[str, tuple[Build, list[Any], list[Any]]] = {
    "beta1": (lambda x: Adam(beta1=x), [0, 0.999], [-1e-9, 1, 1.5]),
    "beta2": (lambda x: Adam(beta2=x), [0, 0.999], [-1e-9, 1, 1.5]),
    "epsilon": (lambda x: Adam(epsilon=x), [0, 1e9], [-1e-9, float("inf")]),
    "momentum": (lambda x: Momentum(x), [0, 0.999], [-1e-9, 1]),
    "tau": (lambda x: AndMask(x), [0, 1], [-1e-9, 1.001]),
    "k": (lambda x: SandMask(k=x), [1e-9, 1e9], [0, -1, float("inf")]),
    "q": (lambda x: Fair(q=x), [0, 5], [-1e-9, float("inf")]),
    "lipschitz": (lambda x: Fair(lipschitz=x), [None, 1e-9], [0, -1, float("inf")]),
    "eta": (lambda x: Constant(x), [1e-9, 1e9], [0, -1, float("inf")]),
    "step size's epsilon": (lambda x: Extrapolated(epsilon=x), [0, 0.5], [-1e-9]),
    "decay": (lambda x: Extrapolated(epsilon_decay=x), [1e-9, 1, 1.5], [0, -1, float("inf")]),
    "floor": (lambda x: EffectiveRank(floor=x), [1e-9, 2], [0, float("inf")]),
    "requester": (lambda x: Erosion(requester=x), [0, 7], [-1]),
    "distance penalty": (lambda x: Erosion(0, distance_penalty=x), [0, 0.5], [-1e-9, float("inf")]),
    "size penalty": (lambda x: Erosion(0, size_penalty=x), [0, 0.5], [-1e-9, float("inf")]),
    "samples": (lambda x: Erosion(0, samples_per_round=x), [1], [0]),
    "batch size": (lambda x: Erosion(0, batch_size=x), [None, 1], [0]),
    "requester of N": (
        lambda x: WeightErosion(weighting=Erosion(requester=x), num_nodes=3),
        [0, 2],
        [3],
    ),
    "seed": (lambda x: FedAvg(seed=x), [0], [-1]),
    "node timeout": (lambda x: FedAvg(node_timeout=x), [0, 0.5], [-1e-9, float("nan")]),
    "nodes per round": (lambda x: FedAvg(nodes_per_round=x, num_nodes=3), [None, 1, 3], [0, 4]),
    "min replies of a round": (lambda x: FedAvg(min_replies=x, nodes_per_round=3), [1, 3], [0, 4]),
    "min replies of N": (lambda x: FedAvg(min_replies=x, num_nodes=3), [1, 3], [4]),
    "failed rounds": (lambda x: FedAvg(max_failed_rounds=x), [1], [0, True, 1.5]),
    "iterates": (lambda x: FedAvg(average_last=x), [1], [0, True]),
    "nodes of a masked round": (lambda x: FedGMA(nodes_per_round=x, num_nodes=3), [2, 3], [1]),
    "option": (lambda x: Scaffold(option=x), [1, 2], [0, 3]),
    "local rounds": (lambda x: SelectiveFedAvg(inner=FedAvg(), local_rounds=x), [1], [0]),
}


@pytest.mark.parametrize("case", RANGES)
def test_both_sides_of_each_end(case: str) -> None:
    build, allowed, refused = RANGES[case]
    for value in allowed:
        build(value)
    for value in refused:
        with pytest.raises(ValueError):
            build(value)


@pytest.mark.parametrize("value", [1, 2, 10**9])
def test_a_count(value: int) -> None:
    require_count("n", value)
    require_count("n", value, optional=True)


@pytest.mark.parametrize("value", [0, -1, 1.0, True, "1"])
def test_no_count(value: object) -> None:
    for optional in (False, True):
        with pytest.raises(ValueError, match="n="):
            require_count("n", value, optional=optional)


def test_none_is_a_count_where_it_is_optional() -> None:
    require_count("n", None, optional=True)
    with pytest.raises(ValueError, match=r"n=None is out of range: expected a whole number above 0$"):
        require_count("n", None)


def test_nan_is_in_no_range() -> None:
    require(True, "x", 1.0, "a number")
    with pytest.raises(ValueError, match="x=nan"):
        require(True, "x", float("nan"), "a number")
