"""synthetic: FedExP's over-parameterised linear regression, with exactly its numbers.

Jhunjhunwala et al., ICLR 2023, section 6 and the authors' notebook ``linear_regression.ipynb``: 20
nodes with 30 rows each in 1,000 dimensions. Every node's equations can be solved exactly, and so can all of
them together. The draws follow the notebook's order on NumPy's legacy generator, so the data are the
published ones.
"""

import numpy as np
import torch

from clients import LeastSquares

from .dataset import Dataset


def synthetic(data_seed: int, num_nodes: int, dimension: int, rows: int, dtype: str) -> Dataset:
    """Return the regression problem A w = b, rows of A and each node's b of unit norm.

    Parameters
    ----------
    data_seed : 0 gives the paper's data
    num_nodes, dimension, rows : M = 20, d = 1000 and 30 rows per node in the paper
    dtype : torch dtype of inputs and targets, ``float64`` or ``float32``
    """
    legacy = np.random.RandomState(data_seed)  # draws as np.random.seed(data_seed) does
    mean_w = legacy.normal(0, 0.1, num_nodes)
    mean_of_mean_x = legacy.normal(0, 0.1, num_nodes)
    mean_x = [legacy.normal(mean_of_mean_x[i], 1, dimension) for i in range(num_nodes)]
    inputs, targets = [], []
    for i in range(num_nodes):
        w = legacy.normal(mean_w[i], 1, (dimension, 1))
        # As multivariate_normal(mean_x[i], I, rows) draws, but without its SVD of the identity.
        x = mean_x[i] + legacy.standard_normal((rows, dimension))
        y = x @ w
        inputs.append(x / np.linalg.norm(x, axis=1, keepdims=True))
        targets.append(y / np.linalg.norm(y))
    a = torch.from_numpy(np.concatenate(inputs)).to(getattr(torch, dtype))
    b = torch.from_numpy(np.concatenate(targets)).to(getattr(torch, dtype))
    owners = np.repeat(np.arange(num_nodes), rows)
    return Dataset(a, b, a, b, LeastSquares(rows), owners=owners)
