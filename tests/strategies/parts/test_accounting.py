"""Accounting: the least epsilon of composed Gaussians, beside the printed formula and published numbers."""

import builtins
import math

import pytest
from scipy.stats import norm

from strategies.parts import privacy
from strategies.parts.privacy import epsilon


def delta_at(epsilon: float, noise: float) -> float:
    """Return Theorem 8 of Balle and Wang: Phi(1/2s - e s) - exp(e) Phi(-1/2s - e s)."""
    first = norm.cdf(1 / (2 * noise) - epsilon * noise)
    return first - math.exp(epsilon) * norm.cdf(-1 / (2 * noise) - epsilon * noise)


@pytest.mark.parametrize(("noise", "rounds"), [(1, 1), (1, 10), (4, 1000), (0.5, 3), (30, 7)])
def test_it_solves_the_printed_formula(noise: float, rounds: int) -> None:
    actual = epsilon(noise, rounds, 1e-5)
    assert delta_at(actual, noise / math.sqrt(rounds)) <= 1e-5
    assert delta_at(actual - 1e-6, noise / math.sqrt(rounds)) > 1e-5


def test_published_settings() -> None:
    """Dwork and Roth's classical sigma for (1, 1e-5), sqrt(2 ln(1.25/delta)) = 4.845, costs less than 1;
    the exact sigma is 3.7304 (computed by Balle and Wang's Algorithm 1).
    """
    assert epsilon(math.sqrt(2 * math.log(1.25e5)), 1, 1e-5) < 1
    assert epsilon(3.7304, 1, 1e-5) == pytest.approx(1, abs=1e-4)


def test_it_is_the_librarys_own_composition() -> None:
    """Its accountant of privacy loss distributions composes ten rounds numerically, from above."""
    import dp_accounting
    from dp_accounting.pld import PLDAccountant

    accountant = PLDAccountant()
    accountant.compose(dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(4.0), 10))
    actual = epsilon(4.0, 10, 1e-5)
    assert actual <= accountant.get_epsilon(1e-5) + 1e-6
    assert actual == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-3)


def test_it_grows_with_rounds_and_falls_with_noise() -> None:
    costs = [epsilon(1.0, rounds, 1e-5) for rounds in (0, 1, 2, 50)]
    assert costs[0] == 0
    assert costs == sorted(costs)
    assert epsilon(2.0, 4, 1e-5) == epsilon(1.0, 1, 1e-5)  # sqrt(4) rounds of half the loss
    assert epsilon(1e9, 1, 1e-5) == 0  # delta alone covers it


def test_next_to_no_noise_costs_everything() -> None:
    assert epsilon(1e-6, 1, 1e-5) == math.inf


def test_without_the_library_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def lacking(name: str, *rest: object, **more: object) -> object:
        if name.startswith("dp_accounting"):
            raise ImportError(name)
        return real(name, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", lacking)
    privacy.epsilon.cache_clear()
    with pytest.raises(ValueError, match=r"pip install -e '\.\[privacy\]'"):
        epsilon(1.0, 1, 1e-5)
