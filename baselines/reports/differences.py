"""Differences: how far apart two settings are over the seeds that both have."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pandas as pd


def difference(
    ours: "pd.Series[float]", theirs: "pd.Series[float]", confidence: float
) -> dict[Literal["mean", "low", "high", "p"], float]:
    """Return the mean of ``ours - theirs``, its confidence interval and the p value of the paired t-test.

    Interval and p are NaN with one pair, with ties, and where a run has diverged; then the mean is, too.
    """
    from scipy import stats  # takes a second, which a run that is drawn need not spend

    differences = ours - theirs
    mean = float(differences.mean(skipna=False))
    if not np.isfinite(mean) or tied(differences.to_numpy()):
        return {"mean": mean, "low": np.nan, "high": np.nan, "p": np.nan}
    test = stats.ttest_rel(ours, theirs)
    low, high = test.confidence_interval(confidence)
    return {"mean": mean, "low": float(low), "high": float(high), "p": float(test.pvalue)}


def tied(differences: Sequence[float] | np.ndarray) -> bool:
    """Say whether all are equal but for rounding; shares of the same examples often are, by chance."""
    all_zero = np.allclose(differences, 0, rtol=0, atol=1e-12)
    return all_zero or np.allclose(differences[1:], differences[0], rtol=1e-9, atol=0)
