"""Our adaptive strategies beside Flower's own, on the same replies: where they agree, and where not."""

from collections.abc import Callable

import numpy as np
import pytest
from flwr.app import RecordDict
from flwr.serverapp import strategy as flower
from flwr.serverapp.strategy import Strategy

from helpers.federation import Federation, answer, model_in, play, record, round_of, sent_model
from strategies import Adagrad, Adam, Constant, FedAdagrad, FedAdam, FedYogi, Yogi

ETA, EPSILON = 0.3, 0.05
MOVES = np.random.default_rng(5).normal(size=(4, 3, 6))


def moved(partition_id: int, content: RecordDict) -> RecordDict:
    w = sent_model(content)["w"]
    return answer({"w": w + MOVES[round_of(content) - 1, partition_id]}, 7 * (partition_id + 1))


def models(strategy: Strategy, rounds: int) -> list[np.ndarray]:
    history = play(strategy, Federation(moved, 3), record({"w": np.zeros(6)}), range(1, rounds + 1))
    return [model_in(arrays)["w"] for arrays, _ in history]


STOCK = {
    "fraction_evaluate": 0.0,
    "min_train_nodes": 3,
    "min_available_nodes": 3,
    "eta": ETA,
    "tau": EPSILON,
}


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (
            lambda: FedYogi(
                server_optimizer=Yogi(beta1=0.9, beta2=0.99, epsilon=EPSILON), step_size=Constant(ETA)
            ),
            lambda: flower.FedYogi(beta_1=0.9, beta_2=0.99, **STOCK),
        ),
        (
            lambda: FedAdagrad(server_optimizer=Adagrad(epsilon=EPSILON), step_size=Constant(ETA)),
            lambda: flower.FedAdagrad(**STOCK),
        ),
    ],
    ids=["fedyogi", "fedadagrad"],
)
def test_the_same(ours: Callable[[], Strategy], theirs: Callable[[], Strategy]) -> None:
    """FedYogi is the same rule; FedAdagrad too, for beta1 = 0, the only one that Flower's has."""
    np.testing.assert_allclose(models(ours(), 4), models(theirs(), 4), rtol=1e-6, atol=1e-7)


def test_fedadam_differs_by_its_bias_correction() -> None:
    """Flower's corrects the step by sqrt(1 - beta2^(t+1)) / (1 - beta1^(t+1)); Algorithm 2 does not."""
    beta1, beta2 = 0.9, 0.99
    stock = models(flower.FedAdam(beta_1=beta1, beta_2=beta2, **STOCK), 3)
    ours = FedAdam(
        server_optimizer=Adam(beta1=beta1, beta2=beta2, epsilon=EPSILON), step_size=Constant(ETA)
    )
    plain = models(ours, 3)
    assert np.abs(np.array(stock) - np.array(plain)).max() > 0.1
    steps = np.diff([np.zeros(6), *plain], axis=0)
    factors = [np.sqrt(1 - beta2 ** (t + 1)) / (1 - beta1 ** (t + 1)) for t in (1, 2, 3)]
    expected = np.cumsum([f * step for f, step in zip(factors, steps, strict=True)], axis=0)
    np.testing.assert_allclose(stock, expected, rtol=1e-6, atol=1e-7)


def test_bias_correction_by_hand() -> None:
    """With a constant D, corrected moments are D and D^2: every step is eta D / (|D| + epsilon)."""
    d = np.array([2.0, -0.5])

    def constant(partition_id: int, content: RecordDict) -> RecordDict:
        return answer({"w": sent_model(content)["w"] - d}, 1)

    optimizer = Adam(epsilon=EPSILON, bias_correction=True)
    strategy = FedAdam(server_optimizer=optimizer, step_size=Constant(ETA))
    history = play(strategy, Federation(constant, 2), record({"w": np.zeros(2)}), (1, 2, 3))
    for t, (arrays, _) in enumerate(history, start=1):
        np.testing.assert_allclose(model_in(arrays)["w"], -t * ETA * d / (np.abs(d) + EPSILON), rtol=1e-12)
