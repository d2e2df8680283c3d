"""What a process imports to deal."""

import subprocess
import sys

import pytest

from baselines.experiment.overrides import ROOT

CODE = """
import sys
import numpy as np
from baselines.partitioners.flower import Dirichlet
labels = np.arange(90) % 3
light = Dirichlet(0.5, 1)(labels, None, 4, 7)
print(sorted({"seaborn", "matplotlib", "flwr_datasets"} & set(sys.modules)))
import flwr_datasets
from flwr_datasets import FederatedDataset
print(sorted(name for name in flwr_datasets.__all__ if not hasattr(flwr_datasets, name)))
from baselines.partitioners import flower
flower._partitioners.cache_clear()
whole = Dirichlet(0.5, 1)(labels, None, 4, 7)
print(flower._partitioners() is flwr_datasets.partitioner)
print(all(np.array_equal(one, other) for one, other in zip(light, whole, strict=True)))
"""


@pytest.mark.slow
def test_dealing_imports_no_plots_and_leaves_no_half_of_a_package() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE], cwd=ROOT, check=True, capture_output=True, text=True
    )
    assert done.stdout.split("\n") == ["[]", "[]", "True", "True", ""]
