"""Corrections that settings choose are checked before the first round."""

from collections.abc import Callable, Mapping
from functools import partial

import pytest
from torch.optim import SGD

from clients import Correction, LocalTraining, RoundStart
from clients.methods.fedprox import Inexact, Proximal
from clients.methods.moon import Moon
from clients.methods.own_initial_model import OwnInitialModel
from strategies.shared.checks import require

Begins = Mapping[str, Callable[[RoundStart], Correction]]


class Shrink(Correction):
    """A user's, whose constructor refuses nothing."""

    def __init__(self, start: RoundStart, gamma: float) -> None:
        self.gamma = gamma


class Bounded(Shrink):
    @staticmethod
    def check_settings(gamma: float) -> None:
        require(gamma >= 0, "gamma", gamma, "0 or above")


class Forgetful(Correction):
    """Its constructor lacks the round's start."""


def training(**corrections: Callable[[RoundStart], Correction]) -> LocalTraining:
    return LocalTraining(optimizer=partial(SGD, lr=0.1), corrections=corrections)


@pytest.mark.parametrize(
    ("begin", "line"),
    [
        (partial(Proximal, mu=-1.0), r"client\.corrections\.proximal\.mu=-1\.0 is out of range"),
        (partial(Proximal, mu=float("nan")), r"client\.corrections\.proximal\.mu=nan is out of range"),
        (partial(Moon, temperature=0.0), r"client\.corrections\.moon\.temperature=0\.0 is out of range"),
        (partial(Inexact, gamma=2.0), r"client\.corrections\.inexact\.gamma=2\.0 is out of range"),
        (partial(Moon, nu=1), r"own=Moon cannot be built \(.*'nu'\): expected mu=1\.0, temperature=0\.5"),
        (partial(OwnInitialModel, nu=1), r"own=OwnInitialModel cannot be built .* expected no settings"),
        (partial(Bounded, gamma=-1.0), r"gamma=-1\.0 is out of range"),
        (
            Forgetful,
            r"own=Forgetful cannot be built \(too many pos.*\): expected def __init__\(self, start: RoundStart\)",
        ),
        (Shrink, r"own=Shrink cannot be built \(.*'gamma'\): expected gamma"),
    ],
)
def test_bad_settings_are_refused(begin: Callable[[RoundStart], Correction], line: str) -> None:
    with pytest.raises(ValueError, match=line):
        training(own=begin)


def test_what_is_in_range_is_taken() -> None:
    within: Begins = {
        "proximal": partial(Proximal, mu=0.0),
        "moon": Moon,
        "inexact": partial(Inexact, gamma=1.0, check_steps=3),
        "shrink": partial(Shrink, gamma=-1.0),
        "bounded": partial(Bounded, gamma=0.0),
        "function": lambda start: Shrink(start, gamma=1.0),  # is not looked into
    }
    assert training(**within).corrections == within


def test_the_constructor_refuses_what_a_function_gives_it() -> None:
    start: RoundStart = None  # type: ignore[assignment]  # is not looked at
    with pytest.raises(ValueError, match="is out of range"):
        Proximal(start, mu=-1.0)
