"""A method that is named for a part is refused without it: then it is another method."""

from dataclasses import fields

import pytest

import strategies
from baselines.errors import UserError
from baselines.experiment.experiment import Experiment
from helpers.every_part import AGGREGATIONS, MASKS, OPTIMIZERS, STEP_SIZES, WEIGHTINGS
from strategies import (
    Adam,
    AgreementMask,
    ByExamples,
    FedAdam,
    FedAvg,
    FedGMA,
    NoMask,
    PseudoGradientStrategy,
    Uniform,
    Yogi,
)

EVERY = {
    "weighting": WEIGHTINGS,
    "aggregation": AGGREGATIONS,
    "server_optimizer": OPTIMIZERS,
    "mask": MASKS,
    "step_size": STEP_SIZES,
}
BASE = PseudoGradientStrategy
METHODS = [
    kind
    for kind in (getattr(strategies, name) for name in strategies.__all__)
    if isinstance(kind, type) and issubclass(kind, BASE) and kind is not BASE
]


def own_parts(kind: type[BASE]) -> set[str]:
    """Return the parts whose class a method chooses for itself; how nodes count is no method's name."""
    chosen = {part.name for part in fields(BASE) if part.name in EVERY}
    of_another_class = {k for k in chosen if type(getattr(kind, k)) is not type(getattr(BASE, k))}
    return {k for k in of_another_class if type(getattr(kind, k)) is not Uniform}


@pytest.mark.parametrize("kind", METHODS, ids=lambda kind: kind.__name__)
def test_a_method_with_a_part_of_its_own_is_named_for_it(kind: type[BASE]) -> None:
    assert own_parts(kind) == ({kind.named_part} if kind.named_part else set())


@pytest.mark.parametrize("kind", [m for m in METHODS if m.named_part], ids=lambda kind: kind.__name__)
def test_without_its_part_a_method_is_refused(kind: type[BASE]) -> None:
    part, own = kind.named_part, type(getattr(kind, kind.named_part))
    others = [other for other in EVERY[part].values() if not isinstance(other, own)]
    assert others
    for other in others:
        expected = (
            f"strategy={kind.__name__} needs {part}={own.__name__}, not {type(other).__name__}: leave"
        )
        with pytest.raises(ValueError, match=expected):
            kind(**{part: other})  # type: ignore[arg-type]
    for same in (other for other in EVERY[part].values() if isinstance(other, own)):
        assert getattr(kind(**{part: same}), part) is same  # type: ignore[arg-type]


def test_yogi_is_no_adam() -> None:
    with pytest.raises(ValueError, match="needs server_optimizer=Adam, not Yogi"):
        FedAdam(server_optimizer=Yogi())
    assert FedAdam(server_optimizer=Adam(beta1=0.0)).server_optimizer == Adam(beta1=0.0)


def test_a_method_without_a_name_takes_any_part_and_a_reduction_stays() -> None:
    assert FedAvg(mask=AgreementMask()).mask == AgreementMask()
    assert FedGMA(mask=AgreementMask(0.0)).mask.is_identity
    assert FedGMA(weighting=Uniform()).weighting == Uniform()
    assert FedAvg(weighting=ByExamples(), mask=NoMask()).mask == NoMask()


@pytest.mark.parametrize(
    ("overrides", "part"),
    [
        ("strategy=fedgma mask=none", "mask=AgreementMask, not NoMask"),
        ("strategy=fedexp step_size=constant", "step_size=Extrapolated, not Constant"),
        ("model=lenet strategy=feder weighting=uniform", "weighting=EffectiveRank, not Uniform"),
        ("strategy=fedadam server_optimizer=identity", "server_optimizer=Adam, not Identity"),
        ("strategy=fedavgm server_optimizer=adam", "server_optimizer=Momentum, not Adam"),
        ("strategy=fednova aggregation=mean", "aggregation=Normalized, not Mean"),
        ("strategy=afl weighting=uniform", "weighting=Agnostic, not Uniform"),
        ("strategy=fedams server_optimizer=adam", "server_optimizer=AMS, not Adam"),
        ("strategy=qfedavg aggregation=median", "aggregation=Fair, not Median"),
        ("strategy=signsgd aggregation=mean", "aggregation=MajorityVote, not Mean"),
        ("experiment=fedexp/cifar10 strategy=feder", "weighting=EffectiveRank, not Uniform"),  # its own
    ],
)
def test_on_the_command_line_too(overrides: str, part: str) -> None:
    with pytest.raises(UserError, match=f"needs {part}"):
        Experiment(overrides).strategy()


def test_a_single_node_masks_nothing() -> None:
    with pytest.raises(UserError, match="LocalOnly trains every node by itself: mask=AgreementMask"):
        Experiment("strategy=local mask=agreement").strategy()


def test_groups_are_chosen_for_a_strategy_that_makes_some() -> None:
    with pytest.raises(UserError, match="grouping=KMeans: strategy=FedAvg makes no groups; leave it out"):
        Experiment("grouping=kmeans").strategy()
    assert Experiment("strategy=selective grouping=kmeans validation_size=50").strategy()
