"""The limits do the program's work: the same rounds give the same model."""

from pathlib import Path

import numpy as np
import pytest
import torch

from baselines.bench import peers
from baselines.bench.__main__ import TINY
from baselines.bench.by_hand import Addmm, Client, Loop, Processes, train_round
from baselines.experiment.experiment import load
from clients.evaluation import evaluate
from helpers.runs import curve, played

ROUNDS = 3
WHOLE_BATCHES = (
    "client.batch_size=null client.local_epochs=null client.local_steps=4"  # no order to differ in
)
DIGITS = f"dataset=digits partitioner=dirichlet num_nodes=5 {WHOLE_BATCHES}"


@pytest.mark.slow
def test_the_addmm_loop_is_fedexp(tmp_path: Path) -> None:
    losses = curve(played(f"{TINY} rounds={ROUNDS}", tmp_path), "test", "loss")
    experiment = load(TINY)
    loop = Addmm(experiment, ROUNDS)
    loop()
    model = experiment.model()
    model.load_state_dict({"w": loop.w})
    loss = evaluate(model, experiment.test_examples, experiment.dataset.task)["loss"]
    assert loss == pytest.approx(losses[ROUNDS], rel=1e-9)
    assert losses[ROUNDS] < 0.9 * losses[0]


def test_the_plain_loop_is_fedavg(tmp_path: Path) -> None:
    losses = curve(played(f"{DIGITS} rounds={ROUNDS}", tmp_path), "test", "loss")
    experiment = load(DIGITS)
    loop = Loop(experiment, ROUNDS)
    loop()
    loop.model.load_state_dict(loop.state)
    loss = evaluate(loop.model, experiment.test_examples, experiment.dataset.task)["loss"]
    assert loss == pytest.approx(losses[ROUNDS], rel=1e-5)
    assert losses[ROUNDS] < 0.99 * losses[0]


def test_a_plain_client_takes_every_example_once_an_epoch() -> None:
    client = Client.of(load("dataset=digits partitioner=iid client.batch_size=50"), 0)
    rows = torch.cat([targets for _, targets in client._batches()])
    assert len(client._batches()) == 3
    assert sorted(rows.tolist()) == sorted(client.targets.tolist())


def test_pfl_research_does_the_same_work() -> None:
    pytest.importorskip("pfl", reason="pfl-research is not installed: pip install pfl")
    experiment = load(f"{DIGITS} partitioner=iid num_nodes=3")  # it weighs all clients equally
    model, expected = experiment.model(), experiment.model()
    clients = [Client.of(experiment, k) for k in range(3)]
    peers.pfl_seconds(model, clients, ROUNDS)
    state = {name: values.clone() for name, values in expected.state_dict().items()}
    for _ in range(ROUNDS):
        state = train_round(expected, state, clients)
    for name, values in model.state_dict().items():
        torch.testing.assert_close(values, state[name], rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_two_processes_are_one_loop() -> None:
    experiment = load(DIGITS)
    model = experiment.model()
    clients = [Client.of(experiment, k) for k in range(5)]
    expected = train_round(model, {k: v.clone() for k, v in model.state_dict().items()}, clients)
    with Processes(DIGITS, 1, 2) as processes:
        for name, values in processes.state.items():
            np.testing.assert_allclose(values, expected[name].numpy(), rtol=1e-5, atol=1e-7)
