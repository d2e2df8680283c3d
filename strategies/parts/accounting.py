"""Accounting: what so many noised rounds cost, as (epsilon, delta).

The arithmetic is Google's dp-accounting: the delta of a Gaussian mechanism at a given epsilon (Balle, Wang:
*Improving the Gaussian Mechanism for Differential Privacy*, ICML 2018, Theorem 8). n Gaussian mechanisms
with noise z are exactly one with noise z / sqrt(n), so that nothing is lost in composing them.
"""

import math
import sys
from contextlib import redirect_stderr
from functools import cache

MOST = 1e6  # an epsilon beyond it promises nothing
LACKING = "privacy needs the package dp-accounting: pip install -e '.[privacy]'"


@cache
def epsilon(noise: float, rounds: int, delta: float) -> float:
    """Return the epsilon of so many Gaussian mechanisms at ``delta``, never too small; above 1e6 infinity.

    Parameters
    ----------
    noise : the noise's standard deviation over the most that a node can change, above 0
    rounds : how many times it was applied to the same node's data
    delta : in (0, 1)

    Raises
    ------
    ValueError : where dp-accounting is not installed
    """
    try:
        with redirect_stderr(sys.__stderr__):  # absl, which it imports, keeps the stream and may close it
            from dp_accounting.pld.privacy_loss_mechanism import GaussianPrivacyLoss  # it takes a second
            from scipy.optimize import bisect
    except ImportError as error:
        raise ValueError(LACKING) from error
    if rounds == 0:
        return 0.0
    law = GaussianPrivacyLoss(noise / math.sqrt(rounds))

    def excess(at: float) -> float:
        return float(law.get_delta_for_epsilon(at)) - delta

    if excess(0.0) <= 0:
        return 0.0
    high = 1.0
    while excess(high) > 0:
        high *= 2
        if high > MOST:
            return math.inf
    return float(bisect(excess, 0.0, high, xtol=1e-10)) + 1e-9
