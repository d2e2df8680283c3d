"""What the comparisons with other programs need before each test."""

import random

import pytest


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Flower shuffles the nodes by Python's own generator."""
    random.seed(0)
