import numpy as np
import pytest


def _read(name: str) -> np.ndarray:
    from pathlib import Path

    golden = Path(__file__).parents[2] / "golden"
    return np.loadtxt(golden / name, delimiter=",", skiprows=1)[:, 1:]


@pytest.fixture(scope="session")
def golden_counts() -> np.ndarray:
    """Return table 4.2 of the thesis on gradient masking: three iid nodes, ten digits."""
    return _read("gma_table4_2_iid_counts.csv")


@pytest.fixture(scope="session")
def skewed_counts() -> np.ndarray:
    """Return its table 4.3: three nodes, each dominated by two digits."""
    return _read("gma_table4_3_skewed_counts.csv")
