"""A data set from a table: one row an example, one column the label."""

from pathlib import Path

import numpy as np
import pandas as pd
import torch
from sklearn.model_selection import train_test_split

from baselines.datasets import Dataset
from clients import Classification


def table(path: str | None, label: str) -> Dataset:
    """Return the table's rows, standardised, a fifth of them for testing."""
    rows = pd.read_csv(path or Path(__file__).parent / "wine.csv")
    targets = rows.pop(label).astype("category").cat.codes.to_numpy(np.int64)
    train, test = train_test_split(
        np.arange(len(rows)), test_size=0.2, stratify=targets, random_state=0
    )
    values = rows.to_numpy(np.float32)
    values = (values - values[train].mean(0)) / values[train].std(0)
    x, y = torch.from_numpy(values), torch.from_numpy(targets)
    return Dataset(x[train], y[train], x[test], y[test], Classification())
