"""Replies made to do harm: each is left out by name; the round is that of the others, to the bit."""

import logging

import numpy as np
import pytest
from flwr.app import Array

from helpers.hostile import (
    Tamper,
    claiming,
    difference,
    played,
    sends,
    tampered,
    tells,
    unchecked,
    without,
)
from strategies import (
    AgreementMask,
    EffectiveRank,
    FedAdam,
    FedAvg,
    FedExP,
    Grouped,
    InverseVariance,
    LocalOnly,
    Scaffold,
    WeightErosion,
    WeightErosionForAll,
)

pytestmark = pytest.mark.filterwarnings("error")  # of numpy's, say: it would be a second line
F = np.float32
ONES = np.ones((4, 3), F)
BYTES = Array(ONES).data
CUT, LYING = claiming(ONES, data=BYTES[:-5]), claiming(np.ones((3, 4), F), shape=(4, 3))
FAR = np.full((4, 3), 1e300)
COUNTS: dict[str, tuple[Tamper, str]] = {
    "nan": (tells(num_examples=float("nan")), "sent num-examples=nan, expected"),
    "inf": (tells(num_examples=float("inf")), "sent num-examples=inf, expected"),
    "-1": (tells(num_examples=-1), "sent num-examples=-1, expected"),
    "0": (tells(num_examples=0), "trained on no examples"),
    "10**400": (tells(num_examples=10**400), "sent a 'num-examples' of 1329 bits"),
    "-10**400": (tells(num_examples=-(10**400)), "sent a 'num-examples' of 1329 bits"),
    "1e308": (tells(num_examples=1e308), "sent num-examples=1e+308, expected"),
    "list": (tells(num_examples=[3.0]), "sent no 'num-examples'"),
    "missing": (tells(num_examples=None), "sent no 'num-examples'"),
    "bool": (unchecked("num-examples", True), "sent no 'num-examples'"),
    "text": (unchecked("num-examples", "3"), "sent no 'num-examples'"),
    "no metrics": (without("metrics"), "sent no 'num-examples'"),
    "loss nan": (tells(loss=float("nan")), "sent 'loss'=nan, expected"),
    "loss inf": (tells(loss=float("-inf")), "sent 'loss'=-inf, expected"),
    "loss 10**400": (tells(loss=10**400), "sent a 'loss' of 1329 bits"),
}
ARRAYS: dict[str, tuple[Tamper, str]] = {
    "turned": (sends(fc__weight=np.ones((3, 4), F)), "'fc.weight' has shape (3, 4), the model's (4, 3)"),
    "turned, and lies": (
        sends(fc__weight=LYING),
        "holds shape (3, 4)",
    ),
    "flat, and lies": (sends(fc__weight=claiming(np.ones(12, F), shape=(4, 3))), "holds shape (12,)"),
    "cut": (sends(fc__weight=CUT), "unreadable arrays"),
    "a header": (sends(fc__weight=claiming(ONES, data=BYTES[:70])), "unreadable arrays"),
    "no bytes": (sends(fc__weight=claiming(ONES, data=b"")), "unreadable arrays"),
    "more bytes": (
        sends(fc__weight=claiming(ONES, data=BYTES + b"1234")),
        "unreadable arrays",
    ),
    "no numpy": (sends(fc__weight=claiming(ONES, data=b"\n" + BYTES)), "unreadable arrays"),
    "complex": (sends(fc__weight=np.ones((4, 3), np.complex64)), "holds complex64, the model's float32"),
    "words": (sends(fc__weight=np.full((4, 3), "1")), "holds <U1, the model's float32"),
    "truth": (sends(fc__weight=np.ones((4, 3), bool)), "holds bool, the model's float32"),
    "whole": (sends(fc__weight=np.ones((4, 3), int)), "holds int64, the model's float32"),
    "array missing": (sends(fc__weight=None), "lacks 'fc.weight'"),
    "additional": (sends(fc__bias=np.ones(4, F)), "has 'fc.bias', which the model does not have"),
    "no arrays": (without("arrays"), "sent no arrays"),
    "array nan": (sends(fc__weight=np.full((4, 3), np.nan, F)), "NaN or infinite"),
    "array inf": (sends(fc__weight=np.full((4, 3), np.inf, F)), "NaN or infinite"),
    "beyond float32": (sends(fc__weight=FAR), "NaN or infinite"),
    "buffer nan": (sends(bn__running_mean=np.full(4, np.nan, F)), "NaN or infinite"),
    "buffer beyond float32": (
        sends(bn__running_mean=FAR[:, 0]),
        "'bn.running_mean' beyond float32",
    ),
    "counter 1e300": (sends(bn__num_batches_tracked=np.array(1e300)), "tracked' beyond int64"),
    "counter 2**63": (sends(bn__num_batches_tracked=np.array(2**63, np.uint64)), "tracked' beyond int64"),
}
CONTROL: dict[str, tuple[Tamper, str]] = {
    "missing": (without("control"), "sent no 'control' record"),
    "in place of the model": (without("arrays"), "sent no arrays"),
    "turned": (sends("control", fc__weight=np.ones((3, 4), F)), "'fc.weight' has shape (3, 4)"),
    "lies": (sends("control", fc__weight=LYING), "holds shape (3, 4)"),
    "cut": (
        sends("control", fc__weight=CUT),
        "unreadable arrays",
    ),
    "nan": (sends("control", fc__weight=np.full((4, 3), np.nan, F)), "NaN or infinite"),
    "beyond float32": (sends("control", fc__weight=np.full((4, 3), -1e300)), "NaN or infinite"),
    "a buffer": (sends("control", bn__running_mean=np.ones(4, F)), "which the model does not have"),
    "short": (sends("control", conv__weight=None), "lacks 'conv.weight'"),
}
STRATEGIES = {
    "fedavg": FedAvg,
    "fedadam": lambda: FedAdam(mask=AgreementMask()),
    "fedexp": lambda: FedExP(average_last=2),
    "variance": lambda: FedAvg(weighting=InverseVariance()),
    "rank": lambda: FedAvg(weighting=EffectiveRank()),
    "scaffold": Scaffold,
    "erosion": WeightErosion,
    "erosion for all": lambda: WeightErosionForAll(inner=WeightErosion()),
    "local": lambda: LocalOnly(inner=FedAvg()),
    "two groups": lambda: Grouped(inner=Scaffold(), groups={"odd": (1, 3), "even": (0, 2)}),
}


def reasons(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == "flwr.strategies"]


@pytest.mark.parametrize(("tamper", "why"), (COUNTS | ARRAYS).values(), ids=[*COUNTS, *ARRAYS])
def test_it_is_left_out_by_name(tamper: Tamper, why: str, caplog: pytest.LogCaptureFixture) -> None:
    alone = played(FedAvg(), tampered(None))
    caplog.clear()
    with caplog.at_level(logging.WARNING, "flwr.strategies"):
        assert not difference(played(FedAvg(), tampered(tamper)), alone)
    for server_round, line in enumerate(reasons(caplog), 1):
        assert line.startswith(f"round {server_round}: partition 1 left out: ")
        assert why in line
        assert "\n" not in line
    assert len(reasons(caplog)) == 2


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_diagnostic_that_is_no_number_costs_no_update(
    value: float, caplog: pytest.LogCaptureFixture
) -> None:
    """The models are those of sound nodes; the metric is left out by name, once in two rounds."""
    sound = played(FedAvg(), tampered(lambda _: None))
    caplog.clear()
    with caplog.at_level(logging.WARNING, "flwr.strategies"):
        outcome = played(FedAvg(), tampered(tells(accuracy=value), "train"))
    expected = [
        (arrays, {name: number for name, number in metrics.items() if name != "accuracy"})
        for arrays, metrics in sound
    ]
    assert not difference(outcome, expected)
    assert caplog.messages == [
        f"'accuracy' of a node is {value}: it is left out, and the node's update counts",
        "not every node sent 'accuracy': not averaged",
    ]


def test_beside_a_loss_that_is_no_number_nothing_is_said_to_count(caplog: pytest.LogCaptureFixture) -> None:
    nan = float("nan")
    with caplog.at_level(logging.WARNING, "flwr.strategies"):
        played(FedAvg(), tampered(tells(loss=nan, accuracy=nan), "train"))
    assert not [line for line in caplog.messages if "update counts" in line]
    assert len(reasons(caplog)) == 2


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
@pytest.mark.parametrize("which", ["cut", "array nan", "turned, and lies", "counter 1e300"])
def test_whatever_the_strategy(strategy: type[FedAvg], which: str) -> None:
    alone = played(strategy(), tampered(None))
    assert not difference(played(strategy(), tampered(ARRAYS[which][0])), alone)


@pytest.mark.parametrize(("tamper", "why"), CONTROL.values(), ids=CONTROL)
def test_a_control_variate_that_is_none(tamper: Tamper, why: str, caplog: pytest.LogCaptureFixture) -> None:
    hostile, lost = Scaffold(), Scaffold()
    alone = played(lost, tampered(None))
    caplog.clear()
    with caplog.at_level(logging.WARNING, "flwr.strategies"):
        assert not difference(played(hostile, tampered(tamper)), alone)
    assert all("partition 1 left out: " in line and why in line for line in reasons(caplog))
    assert len(reasons(caplog)) == 2
    assert hostile.state_dict()["server_vector"].equal(lost.state_dict()["server_vector"])
