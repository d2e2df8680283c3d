"""Nodes that do less in a round: who, and how much, by the seed alone; batched and one by one alike."""

from functools import partial

import numpy as np
import pytest
from torch.optim import SGD

from baselines.apps import client_app_of, get_batched_trainer
from baselines.experiment import experiment
from baselines.grids.inline import InlineGrid
from clients import LocalTraining
from clients.round import adapt_to_round

SGD_01 = partial(SGD, lr=0.1)
RUN = "dataset=digits num_nodes=6 model=softmax seed=4 client.local_epochs=5 client.stragglers=0.5"


def by_hand(seed: int, server_round: int, partition_id: int, share: float, most: int) -> int:
    """Return a node's work: all, or uniform from 1, by the second number of its generator."""
    draws = np.random.default_rng([seed, server_round, partition_id, 10])
    return most if draws.random() >= share else int(draws.integers(1, most + 1))


@pytest.mark.parametrize("unit", ["local_epochs", "local_steps"])
def test_work_by_hand(unit: str) -> None:
    other = "local_steps" if unit == "local_epochs" else "local_epochs"
    training = LocalTraining(optimizer=SGD_01, stragglers=0.6, **{unit: 5, other: None})
    places = [(t, k) for t in range(1, 6) for k in range(8)]
    actual = [getattr(adapt_to_round(training, 4, t, k), unit) for t, k in places]
    assert actual == [by_hand(4, t, k, 0.6, 5) for t, k in places]
    assert set(actual) == {1, 2, 3, 4, 5}


def test_nobody_does_less_than_the_least_work() -> None:
    training = LocalTraining(optimizer=SGD_01, local_epochs=4, stragglers=1, least_work=3)
    assert {adapt_to_round(training, 0, 1, k).local_epochs for k in range(30)} == {3, 4}


def test_without_stragglers_it_is_the_training_itself() -> None:
    training = LocalTraining(optimizer=SGD_01, local_epochs=4)
    assert adapt_to_round(training, 0, 1, 2) is training


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"stragglers": 1.5}, "client.stragglers=1.5 is out of range"),
        ({"least_work": 0}, "client.least_work=0 is out of range"),
        ({"stragglers": 0.5}, "no node could do less work"),
        ({"stragglers": 0.5, "local_epochs": 3, "least_work": 3}, "no node could do less work"),
    ],
)
def test_what_makes_no_sense_is_refused(given: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LocalTraining(optimizer=SGD_01, **given)  # type: ignore[arg-type]


def steps_and_weights(batched: bool) -> tuple[list[int], np.ndarray]:
    experiment.load.cache_clear()
    setup = experiment.load(RUN)
    strategy, together = setup.strategy(), get_batched_trainer(RUN) if batched else None
    grid = InlineGrid(client_app_of(RUN), 6, together)
    replies = grid.send_and_receive(
        strategy.configure_train(1, setup.initial_arrays(), setup.train_config(), grid)
    )
    assert (grid.answering.batched_trainer is not None) == batched
    metrics = [reply.content.metric_records["metrics"] for reply in replies]
    steps = {int(m["partition-id"]): int(m["local-steps"]) for m in metrics}  # type: ignore[arg-type]
    arrays, _ = strategy.aggregate_train(1, replies)
    assert arrays is not None
    return [steps[k] for k in range(6)], np.concatenate([a.numpy().ravel() for a in arrays.values()])


def test_batched_nodes_do_as_much_as_each_would_alone() -> None:
    """An epoch's steps times the epochs drawn by hand; the model to rounding."""
    alone, model = steps_and_weights(batched=False)
    together, batched = steps_and_weights(batched=True)
    setup = experiment.load(RUN)
    per_epoch = [-(-len(setup.node(k).train) // 32) for k in range(6)]
    assert alone == together == [by_hand(4, 1, k, 0.5, 5) * per_epoch[k] for k in range(6)]
    assert len({by_hand(4, 1, k, 0.5, 5) for k in range(6)}) > 1
    np.testing.assert_allclose(model, batched, rtol=1e-4, atol=1e-6)
