"""Pair settings with a baseline, seed by seed."""

from collections.abc import Collection, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd

BASELINE_REASON = "it is a baseline itself; name one setting, and all others are compared with it"

# Differences between two settings, over the seeds that both have.


def difference(
    ours: "pd.Series[float]", theirs: "pd.Series[float]", confidence: float
) -> dict[Literal["mean", "low", "high", "p"], float]:
    """Return the mean of ``ours - theirs``, its confidence interval and the p value of the paired t-test.

    Interval and p are NaN for one pair, for ties, and if a run has diverged; then the mean is NaN as well.
    """
    from scipy import stats  # takes a second, which a run that is drawn need not spend

    differences = ours - theirs
    mean = float(differences.mean(skipna=False))
    if not np.isfinite(mean) or is_tied(differences.to_numpy()):
        return {"mean": mean, "low": np.nan, "high": np.nan, "p": np.nan}
    test = stats.ttest_rel(ours, theirs)
    low, high = test.confidence_interval(confidence)
    return {"mean": mean, "low": float(low), "high": float(high), "p": float(test.pvalue)}


def is_tied(differences: Sequence[float] | np.ndarray) -> bool:
    """Say whether all are equal up to rounding; shares of the same examples often are, by chance."""
    all_zero = np.allclose(differences, 0, rtol=0, atol=1e-12)
    return all_zero or np.allclose(differences[1:], differences[0], rtol=1e-9, atol=0)


def adjust_holm(chances: Sequence[float] | np.ndarray) -> np.ndarray:
    """Return Holm's adjusted p values, which control the chance of any false positive.

    Comparisons without a p value (NaN) do not count.
    """
    p = np.asarray(chances, dtype=float)
    order = np.argsort(p)[: np.isfinite(p).sum()]  # NaN comes last
    adjusted = np.full(len(p), np.nan)
    steps = p[order] * np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(steps)) if len(order) else []
    return adjusted


def interval(values: "pd.Series[float]", confidence: float = 0.95) -> float:
    """Return half the width of a confidence interval of the mean, by Student's t; 0 for a single value."""
    from scipy import stats  # takes a second, which a run that is drawn need not spend

    count = int(values.count())
    if count < 2:
        return 0.0
    return float(stats.t.ppf((1 + confidence) / 2, count - 1) * values.std() / count**0.5)


def pair_settings(
    rows: pd.DataFrame, is_base: "pd.Series[bool]", keys: list[str], confidence: float
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return a row for each setting that has a partner, and a reason for each that has none.

    Parameters
    ----------
    rows : one for each run, with its settings, ``setting``, ``seed`` and ``value``
    is_base : which rows are the baselines'
    keys : the settings besides the baseline's own; those in which baselines differ select the partner
    """
    telling = [key for key in keys if len(rows[is_base][key].astype(str).unique()) > 1]
    pairs, alone = [], {}
    for label, own in rows[~is_base].groupby("setting", sort=False):
        own_values = own[telling].astype(str).iloc[0]
        partner = rows[is_base & (rows[telling].astype(str) == own_values).all(axis=1)]
        both = own.merge(partner, on="seed", suffixes=("", "_base"))
        if partner.empty:
            lacks = [key for key in telling if own[key].isna().iloc[0]]
            has = ", ".join(f"{key}={value}" for key, value in own_values.items())
            reason = f"baselines differ in {', '.join(lacks)}, which it has not"
            alone[str(label)] = reason if lacks else f"no baseline has {has}"
        elif len(partner.setting.unique()) > 1:
            alone[str(label)] = f"several baselines: {', '.join(map(str, partner.setting.unique()))}"
        elif both.empty:
            alone[str(label)] = f"no seed in common with {partner.setting.iloc[0]}"
        else:
            row: dict[str, Any] = {
                "setting": label,
                "baseline": partner.setting.iloc[0],
                "seeds": len(both),
            }
            row.update(difference(both.value, both.value_base, confidence).items())
            pairs.append(row)
    paired = {row["baseline"] for row in pairs}
    unused = rows[is_base & ~rows.setting.isin(paired)].setting.unique()
    if pairs:
        alone |= dict.fromkeys(map(str, unused), BASELINE_REASON)
    for row, p in zip(pairs, adjust_holm([row["p"] for row in pairs]), strict=True):
        row["p_holm"] = float(p)
    return pairs, alone


def format_pairs(compared: pd.DataFrame, percent: bool, diverged: Collection[str] = ()) -> pd.DataFrame:
    """Return the rows of :func:`baselines.results.paired` as texts; shares in percentage points.

    ``diverged`` are the settings with a diverged run, whose differences are not shown.
    """
    scale, form, unit = (100.0, "+.2f", " points") if percent else (1.0, "+.3g", "")
    rows = []
    for row in compared.to_dict("records"):
        lost = row["setting"] in diverged or row["baseline"] in diverged
        none = "diverged" if lost else "nan"
        mean = f"{row['mean'] * scale:{form}}{unit}" if row["mean"] == row["mean"] else none
        interval = f"{row['low'] * scale:{form}} to {row['high'] * scale:{form}}{unit}"
        known = row["low"] == row["low"]  # not NaN, as with one seed, equal differences, or a diverged run
        chance, adjusted = (_chance(row[name]) for name in ("p", "p_holm"))
        rows.append(
            {
                "setting": f"{row['setting']} - {row['baseline']}",
                "seeds": str(row["seeds"]),
                "difference": mean,
                "95 % interval": interval if known else "-",
                "p": chance if known else "-",
                "p (Holm)": adjusted if known else "-",
            }
        )
    return pd.DataFrame(rows)


def _chance(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.2g}"
