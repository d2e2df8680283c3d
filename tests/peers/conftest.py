"""The comparisons with other programs use the federation of plain functions of the strategies' tests."""

import random
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "strategies"))


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Flower shuffles the nodes by Python's own generator."""
    random.seed(0)
