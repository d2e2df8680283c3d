"""What is given to a strategy for a part and is none: one line, before anything runs."""

from dataclasses import dataclass
from typing import Any

import pytest

from helpers.every_part import AGGREGATIONS
from strategies import AgreementMask, FedAvg, FedExP, Mask, Median, NoMask, Scaffold, StepSize, Uniform

METADATA_KEY: dict[str, tuple[Any, dict[str, Any], str]] = {
    "a number": (
        FedAvg,
        {"step_size": 0.5},
        "step_size=0.5: expected a StepSize, e.g. Constant(eta=1.0)",
    ),
    "a name": (FedAvg, {"mask": "agreement"}, "mask='agreement': expected a Mask, e.g. NoMask()"),
    "a class": (
        FedAvg,
        {"aggregation": Median},
        "aggregation=Median, a class: expected an Aggregation, e.g. Mean()",
    ),
    "None": (FedExP, {"privacy": None}, "privacy=None: expected a Privacy, e.g. NoPrivacy()"),
    "another part": (Scaffold, {"compression": Uniform()}, "compression=Uniform(): expected a Compression"),
    "no weighting": (FedAvg, {"weighting": 1}, "weighting=1: expected a Weighting, e.g. ByExamples()"),
    "no optimizer": (
        FedAvg,
        {"server_optimizer": "adam"},
        "server_optimizer='adam': expected a ServerOptimizer, e.g. Identity()",
    ),
}


@pytest.mark.parametrize(("strategy", "given", "message"), METADATA_KEY.values(), ids=METADATA_KEY)
def test_is_refused_by_name(strategy: Any, given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as error:
        strategy(**given)
    assert str(error.value).startswith(message)


def test_so_for_a_part_that_a_strategy_of_ones_own_adds() -> None:
    @dataclass(kw_only=True, eq=False)
    class TwoMasks(FedAvg):
        second: Mask = AgreementMask()
        also: StepSize | None = None  # who allows more than a part checks it alone

    assert TwoMasks(second=NoMask(), also=3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^second=0\.4: expected a Mask, e\.g\. AgreementMask"):
        TwoMasks(second=0.4)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", AGGREGATIONS)
def test_parts_are_taken(name: str) -> None:
    assert FedAvg(aggregation=AGGREGATIONS[name], weighting=Uniform(), nodes_per_round=10)
