"""FedExP's synthetic problem: the published data, and the losses of independent code, number by number."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from baselines.datasets import synthetic
from helpers.runs import curve, played

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "synthetic.json").read_text())
EXPERIMENT = "experiment=fedexp/synthetic"
PAPER = {"num_nodes": 20, "dimension": 1000, "rows": 30, "dtype": "float64"}


@pytest.mark.parametrize(
    ("seed", "first_inputs", "first_targets", "total"),
    [
        (
            0,
            [-0.02648252, -0.04168417, -0.09473811],
            [-0.09126015, -0.23444541, -0.21370403],
            55.0338219276,
        ),
        (
            42,
            [0.01840038, -0.00769491, -0.01201357],
            [0.18159538, -0.06135687, 0.04007761],
            -283.5239494380,
        ),
    ],
)
def test_data_are_the_published_ones(
    seed: int, first_inputs: list[float], first_targets: list[float], total: float
) -> None:
    data = synthetic(seed, **PAPER)  # type: ignore[arg-type]
    a, b = data.train_inputs.numpy(), data.train_targets.numpy()
    np.testing.assert_allclose(a[0, :3], first_inputs, atol=6e-9)
    np.testing.assert_allclose(b[:3, 0], first_targets, atol=6e-9)
    np.testing.assert_allclose(a.sum(), total, atol=6e-11)
    assert (a.shape, b.shape, a.dtype) == ((600, 1000), (600, 1), np.float64)
    np.testing.assert_allclose(np.square(a).sum(1), 1)
    np.testing.assert_allclose(np.square(b).sum(), 20)


def test_draws_are_the_authors_draws_bit_for_bit() -> None:
    """The notebook's own calls, with its multivariate normal over the identity, at a small size."""
    nodes, dimension, rows = 3, 40, 5
    np.random.seed(7)  # noqa: NPY002 - the legacy generator is the point
    mean_w = np.random.normal(0, 0.1, nodes)  # noqa: NPY002
    b = np.random.normal(0, 0.1, nodes)  # noqa: NPY002
    mean_x = [np.random.normal(b[i], 1, dimension) for i in range(nodes)]  # noqa: NPY002
    a_rows, b_rows = [], []
    for i in range(nodes):
        w = np.random.normal(mean_w[i], 1, (dimension, 1))  # noqa: NPY002
        x = np.random.multivariate_normal(mean_x[i], np.eye(dimension), rows)  # noqa: NPY002
        y = x @ w
        a_rows.append(x / np.linalg.norm(x, axis=1, keepdims=True))
        b_rows.append(y / np.linalg.norm(y))
    data = synthetic(7, nodes, dimension, rows, "float64")
    np.testing.assert_array_equal(data.train_inputs.numpy(), np.concatenate(a_rows))
    np.testing.assert_array_equal(data.train_targets.numpy(), np.concatenate(b_rows))
    assert data.owners is not None
    np.testing.assert_array_equal(data.owners, np.repeat(np.arange(nodes), rows))


@pytest.fixture(scope="module")
def fedexp(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    """Return the metrics of 199 rounds."""
    overrides = f"{EXPERIMENT} strategy=fedexp step_size.epsilon=0 rounds=199"
    return played(overrides, tmp_path_factory.mktemp("fedexp"))


@pytest.mark.slow
def test_fedexp_digit_by_digit_while_it_is_not_chaotic(fedexp: pd.DataFrame) -> None:
    loss, eta = curve(fedexp, "test", "loss"), curve(fedexp, "train", "step_size")
    np.testing.assert_allclose(loss[:21], GOLDEN["fedexp"]["loss"], rtol=1e-6)
    np.testing.assert_allclose(eta[:20], GOLDEN["fedexp"]["step"], rtol=1e-6)
    np.testing.assert_allclose(
        [loss[5], loss[10], loss[20]], [0.0552442, 0.0239576, 0.000722352], rtol=1e-6
    )
    np.testing.assert_allclose(eta[:3], [9.415743, 16.325477, 29.000697], rtol=1e-7)
    assert set(fedexp[fedexp.split == "test"].model) == {"average"}


@pytest.mark.slow
def test_fedexp_bands_where_it_is(fedexp: pd.DataFrame) -> None:
    """Two correct float64 programs differ by 1 % from round 47 on."""
    loss = curve(fedexp, "test", "loss")
    assert len(loss) == 200
    assert loss[100] < 1e-8
    assert loss[199] < 1e-12


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        ("fedavg", "strategy=fedavg step_size.eta=10"),
        ("fedprox", "strategy=fedprox step_size.eta=10 strategy.mu=0.01"),
        ("scaffold", "strategy=scaffold step_size.eta=10"),
        ("fedadagrad", "strategy=fedadagrad step_size.eta=0.1 server_optimizer.epsilon=0"),
    ],
)
def test_stable_methods_over_199_rounds(name: str, overrides: str, tmp_path: Path) -> None:
    loss = curve(played(f"{EXPERIMENT} {overrides} rounds=199", tmp_path), "test", "loss")
    np.testing.assert_allclose(loss, GOLDEN[name]["loss"], rtol=1e-6)
