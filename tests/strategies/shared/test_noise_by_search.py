"""EVBMF against a plain search for the lowest point of the paper's objective, and its threshold."""

import math

import numpy as np
import pytest
import torch

from strategies.shared.linalg import evbmf


def objective(noise: float, e: np.ndarray, aspect: float) -> float:
    """Return sum psi(e / v) as the paper writes it: x - ln x, and above the threshold terms in tau."""
    bar = 2.5129 * math.sqrt(aspect)
    threshold = (1 + bar) * (1 + aspect / bar)
    total = 0.0
    for each in e:
        x = each / noise
        total += x - math.log(x)
        if x > threshold:
            tau = (x - (1 + aspect) + math.sqrt((x - (1 + aspect)) ** 2 - 4 * aspect)) / 2
            total += math.log(tau + 1) + aspect * math.log(tau / aspect + 1) - tau
    return total


def searched(e: np.ndarray, aspect: float) -> float:
    """Return the lowest point of a fine grid over the paper's interval."""
    bar = 2.5129 * math.sqrt(aspect)
    threshold = (1 + bar) * (1 + aspect / bar)
    after = math.ceil(len(e) / (1 + aspect)) - 1  # K-bar: so many can be more than noise
    low = max(e[after] / threshold, e[after:].mean())
    grid = np.exp(np.linspace(math.log(low), math.log(e.mean()), 10_000))
    return float(min(grid, key=lambda v: objective(v, e, aspect)))


SPECTRA = {  # whose lowest point is inside the interval, near its lower end
    "2 x 7": ((39.39, 0.51), 7),
    "2 x 8": ((27.13, 1.32), 8),
    "3 x 3": ((99.06, 0.67, 0.59), 3),
    "3 x 5": ((28.11, 1.13, 0.52), 5),
    "4 x 4": ((20.83, 1.03, 0.94, 0.8), 4),
    "5 x 17": ((40.87, 34.92, 8.37, 0.67, 0.65), 17),
    "5 x 20": ((148.77, 51.16, 21.1, 1.29, 1.03), 20),
}


@pytest.mark.parametrize("case", SPECTRA)
def test_the_lowest_point_of_the_interval(case: str) -> None:
    spectrum, columns = SPECTRA[case]
    e = np.array(spectrum)
    matrix = torch.zeros(len(e), columns, dtype=torch.float64)
    matrix[:, : len(e)] = torch.diag(torch.from_numpy(np.sqrt(e * columns)))
    noise, _ = evbmf(matrix)
    assert noise == pytest.approx(searched(e, len(e) / columns), rel=2e-3)
    assert noise < 0.9 * e.mean()


@pytest.mark.parametrize("columns", [50, 200])
def test_what_is_above_the_threshold_is_signal(columns: int) -> None:
    """x* = (1 + t) (1 + a / t) with t = 2.5129 sqrt(a): one direction rises through it, in small steps."""
    aspect = 50 / columns
    bar = 2.5129 * math.sqrt(aspect)
    threshold = (1 + bar) * (1 + aspect / bar)
    ranks = set()
    for first in np.linspace(0.7 * threshold, 1.4 * threshold, 60):
        e = np.array([first, *np.linspace(1.2, 0.8, 49)])
        matrix = torch.zeros(50, columns, dtype=torch.float64)
        matrix[:, :50] = torch.diag(torch.from_numpy(np.sqrt(e * columns)))
        noise, shrunk = evbmf(matrix)
        assert len(shrunk) == (e > threshold * noise).sum()
        ranks.add(len(shrunk))
    assert ranks == {0, 1}
