"""Learning rate and optimiser state over rounds."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from flwr.app import RecordDict
from torch.optim import SGD, Adam, Optimizer

from clients import Classification, Exponential, LocalTraining, StepDecay
from helpers.plain_loop import SEED, assert_equal, by_hand, examples, perceptron, seeded


@pytest.mark.parametrize(
    ("schedule", "factors"),
    [
        (Exponential(), [1, 1, 1, 1, 1]),
        (Exponential(0.5), [1, 0.5, 0.25, 0.125, 0.0625]),
        (Exponential(0.5, ahead=1), [0.5, 0.25, 0.125, 0.0625, 0.03125]),
        (StepDecay(2, 0.1), [1, 1, 0.1, 0.1, 0.1**2]),
        (StepDecay(1, 0.5), [1, 0.5, 0.25, 0.125, 0.0625]),
    ],
)
def test_schedules_by_hand(schedule: Exponential | StepDecay, factors: list[float]) -> None:
    assert [schedule(t) for t in range(1, 6)] == pytest.approx(factors, rel=1e-12)


def test_the_learning_rate_follows_the_schedule() -> None:
    ours, plain, data = seeded(perceptron), seeded(perceptron), examples()
    training = LocalTraining(optimizer=partial(SGD, lr=0.4), schedule=Exponential(0.5), batch_size=16)
    metrics = training(ours, data, Classification(), server_round=3, seed=SEED)
    by_hand(plain, data, SGD(plain.parameters(), lr=0.1), epochs=1, batch_size=16)
    assert_equal(ours, plain)
    assert metrics["learning-rate"] == 0.1


@pytest.mark.parametrize("optimizer", [partial(SGD, lr=0.1, momentum=0.9), partial(Adam, lr=0.01)])
def test_a_kept_optimizer_goes_on_and_a_fresh_one_does_not(optimizer: Callable[..., Optimizer]) -> None:
    kept, fresh, plain, restarted = (seeded(perceptron) for _ in range(4))
    data, memory, going_on = examples(), RecordDict(), optimizer(plain.parameters())
    for server_round in (1, 2, 3):
        for model, keep in ((kept, True), (fresh, False)):
            training = LocalTraining(optimizer=optimizer, batch_size=16, keep_optimizer=keep)
            training(model, data, Classification(), server_round=server_round, seed=SEED, memory=memory)
        by_hand(plain, data, going_on, epochs=1, batch_size=16)
        by_hand(restarted, data, optimizer(restarted.parameters()), epochs=1, batch_size=16)
    assert_equal(kept, plain)
    assert_equal(fresh, restarted)
    assert not torch.equal(next(kept.parameters()), next(fresh.parameters()))
