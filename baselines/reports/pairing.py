"""Pairing: which settings are compared with a baseline, seed by seed, and why others are not."""

from collections.abc import Collection
from typing import Any

import pandas as pd

from .differences import difference


def paired(
    rows: pd.DataFrame, is_base: "pd.Series[bool]", keys: list[str], confidence: float
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return a row for each setting that has a partner, and why each of the others has none.

    Parameters
    ----------
    rows : one for each run, with its settings, ``setting``, ``seed`` and ``value``
    is_base : which of them are the baseline's
    keys : the settings beside the baseline's own; those in which baselines differ tell them apart
    """
    telling = [key for key in keys if len(rows[is_base][key].astype(str).unique()) > 1]
    found, alone = [], {}
    for label, own in rows[~is_base].groupby("setting", sort=False):
        wanted = own[telling].astype(str).iloc[0]
        partner = rows[is_base & (rows[telling].astype(str) == wanted).all(axis=1)]
        both = own.merge(partner, on="seed", suffixes=("", "_base"))
        if partner.empty:
            lacks = [key for key in telling if own[key].isna().iloc[0]]
            has = ", ".join(f"{key}={value}" for key, value in wanted.items())
            apart = f"baselines differ in {', '.join(lacks)}, which it has not"
            alone[str(label)] = apart if lacks else f"no baseline has {has}"
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
            found.append(row)
    return found, alone


def texts(compared: pd.DataFrame, percent: bool, diverged: Collection[str] = ()) -> pd.DataFrame:
    """Return the rows of :func:`baselines.results.paired` as texts; of shares in percentage points.

    ``diverged`` are the settings with a run that has, which have no difference from others.
    """
    scale, form, unit = (100.0, "+.2f", " points") if percent else (1.0, "+.3g", "")
    rows = []
    for row in compared.to_dict("records"):
        lost = row["setting"] in diverged or row["baseline"] in diverged
        none = "diverged" if lost else "nan"
        mean = f"{row['mean'] * scale:{form}}{unit}" if row["mean"] == row["mean"] else none
        interval = f"{row['low'] * scale:{form}} to {row['high'] * scale:{form}}{unit}"
        known = row["low"] == row["low"]  # no NaN: one seed, the same difference in all, diverged
        chance = "< 0.001" if row["p"] < 0.001 else f"{row['p']:.2g}"
        rows.append(
            {
                "setting": f"{row['setting']} - {row['baseline']}",
                "seeds": str(row["seeds"]),
                "difference": mean,
                "95 % interval": interval if known else "-",
                "p": chance if known else "-",
            }
        )
    return pd.DataFrame(rows)
