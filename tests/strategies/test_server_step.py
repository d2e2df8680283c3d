"""Three rounds of the server step against vectors computed by independent code."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import RecordDict

from helpers.federation import Federation, answer, model_in, play, record, round_of, sent_model
from strategies import (
    Adagrad,
    Adam,
    AgreementMask,
    AndMask,
    ByExamples,
    Constant,
    Extrapolated,
    Identity,
    Momentum,
    NoMask,
    PseudoGradientStrategy,
    Uniform,
    Yogi,
)

GOLDEN = Path(__file__).parents[1] / "golden"
ROWS: list[dict[str, Any]] = json.loads((GOLDEN / "server_step.json").read_text())
VECTORS = np.load(GOLDEN / "server_step.npz")
START = VECTORS["w0"]

PARTS = {
    "uniform": lambda row: Uniform(),
    "examples": lambda row: ByExamples(),
    "identity": lambda row: Identity(),
    "momentum": lambda row: Momentum(0.9),
    "adam": lambda row: Adam(beta1=0.9, beta2=0.99, epsilon=1e-3),
    "yogi": lambda row: Yogi(beta1=0.9, beta2=0.99, epsilon=1e-3),
    "adagrad": lambda row: Adagrad(
        beta1=0.0, epsilon=row.get("epsilon", 1e-3), epsilon_inside=row.get("eps_inside", False)
    ),
    "none": lambda row: NoMask(),
    "agreement": lambda row: AgreementMask(row["tau"]),
    "and": lambda row: AndMask(row["tau"]),
    "constant": lambda row: Constant(row["eta"]),
    "extrapolated": lambda row: Extrapolated(row["eps_exp"]),
}


def strategy_of(row: dict[str, Any]) -> PseudoGradientStrategy:
    weighting, server_optimizer, mask, step_size = (
        PARTS[row[part]](row) for part in ("weighting", "opt", "mask", "step")
    )
    return PseudoGradientStrategy(
        weighting=weighting, server_optimizer=server_optimizer, mask=mask, step_size=step_size
    )


def displaced(partition_id: int, content: RecordDict) -> RecordDict:
    """Return w[t] + displacement, the model in two arrays."""
    now = round_of(content) - 1
    moved = {"matrix": VECTORS["displacements"][now, partition_id, :48].reshape(6, 8)}
    moved["bias"] = VECTORS["displacements"][now, partition_id, 48:]
    model = {name: values + moved[name] for name, values in sent_model(content).items()}
    return answer(model, int(VECTORS["num_examples"][now, partition_id]))


def name_of(row: dict[str, Any]) -> str:
    return "-".join(str(row[part]) for part in ("weighting", "opt", "mask", "tau", "step"))


@pytest.mark.parametrize(("index", "row"), list(enumerate(ROWS)), ids=map(name_of, ROWS))
def test_three_rounds_equal_the_vectors(index: int, row: dict[str, Any]) -> None:
    grid = Federation(displaced, VECTORS["displacements"].shape[1])
    arrays = record({"matrix": START[:48].reshape(6, 8), "bias": START[48:]})
    history = play(strategy_of(row), grid, arrays, rounds=(1, 2, 3))
    for server_round, (model, metrics) in enumerate(history):
        w = np.concatenate([values.ravel() for values in model_in(model).values()])
        np.testing.assert_allclose(w, VECTORS[f"w_{index}"][server_round], rtol=1e-10, atol=1e-13)
        assert metrics["step-size"] == pytest.approx(VECTORS[f"eta_{index}"][server_round], rel=1e-10)
