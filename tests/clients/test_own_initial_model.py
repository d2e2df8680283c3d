"""Nodes that begin from models of their own: in round 1, by the seed, batched and one by one alike."""

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, RecordDict
from torch import nn

from baselines.apps import client_app_of, get_batched_trainer
from baselines.experiment import experiment
from baselines.grids.inline import InlineGrid
from clients import OwnInitialModel, RoundStart
from strategies.shared.seeding import Purpose, torch_seed

RUN = "dataset=digits num_nodes=3 model=softmax seed=4 corrections=own_initial_model"
STILL = f"{RUN} client.optimizer.lr=0"


def rounds(overrides: str, count: int, batched: bool) -> list[tuple[list[np.ndarray], np.ndarray]]:
    """Return of each round what each node has sent, by partition, and the model that came of it."""
    experiment.load.cache_clear()
    setup = experiment.load(overrides)
    grid = InlineGrid(client_app_of(overrides), 3, get_batched_trainer(overrides) if batched else None)
    strategy, arrays, models = setup.strategy(), setup.initial_arrays(), []
    for number in range(1, count + 1):
        messages = strategy.configure_train(number, arrays, setup.train_config(), grid)
        replies = list(grid.send_and_receive(messages))
        assert (grid.answering.batched_trainer is not None) == batched
        by_partition = {
            int(reply.content.metric_records["metrics"]["partition-id"]): flat(  # type: ignore[arg-type]
                reply.content.array_records["arrays"]
            )
            for reply in replies
        }
        new, _ = strategy.aggregate_train(number, replies)
        assert new is not None
        arrays = new
        models.append(([by_partition[k] for k in range(3)], flat(arrays)))
    return models


def flat(arrays: ArrayRecord) -> np.ndarray:
    return np.concatenate([a.numpy().ravel() for a in arrays.values()])


def drawn(partition_id: int) -> np.ndarray:
    """Return what torch draws for a linear layer from the node's own seed."""
    torch.manual_seed(torch_seed(4, Purpose.NODE_MODEL, partition_id=partition_id))
    layer = nn.Linear(64, 10)
    return np.concatenate([p.detach().numpy().ravel() for p in (layer.weight, layer.bias)])


def test_round_one_begins_from_each_nodes_own_and_round_two_from_their_mean() -> None:
    """At a learning rate of 0 a node sends back what it began with."""
    (own, mean), (second, _) = rounds(STILL, 2, batched=False)
    for k in range(3):
        assert np.array_equal(own[k], drawn(k))
        assert np.array_equal(second[k], mean)
    assert not np.array_equal(own[0], own[1])
    sizes = [len(experiment.load(STILL).node(k).train) for k in range(3)]
    assert mean == pytest.approx(np.average(own, axis=0, weights=sizes), abs=1e-6)


def test_without_it_all_begin_from_the_servers() -> None:
    ((own, mean),) = rounds(STILL.replace(" corrections=own_initial_model", ""), 1, batched=False)
    assert all(np.array_equal(values, own[0]) for values in own)
    assert mean == pytest.approx(own[0], abs=1e-7)


def test_batched_nodes_begin_where_each_would_alone() -> None:
    alone, together = rounds(RUN, 2, batched=False), rounds(RUN, 2, batched=True)
    for (one, _), (other, _) in zip(alone, together, strict=True):
        assert np.array(other) == pytest.approx(np.array(one), abs=1e-6)


def test_a_node_without_a_model_of_its_own_is_refused() -> None:
    setup = experiment.load(RUN)
    node = setup.node(0)
    training, config = setup.training, RecordDict({"config": ConfigRecord({"server-round": 1})})
    start = RoundStart(
        node.model, node.train, node.task, training.optimizer, 1, None, config, RecordDict(), 0
    )
    with pytest.raises(ValueError, match="this node draws no model of its own"):
        OwnInitialModel(start)


@pytest.mark.parametrize("order", ["[own_initial_model,proximal]", "[proximal,own_initial_model]"])
def test_the_anchor_is_the_servers_in_whatever_order(order: str) -> None:
    """Half of the way from its own model to the server's, in one step of rate 0.5, beside the gradient."""
    settings = (
        "client.local_epochs=null client.local_steps=1 client.batch_size=null client.optimizer.lr=0.5"
    )
    pulled, free = (
        rounds(f"{RUN.replace('own_initial_model', chosen)} {settings}", 1, batched=False)[0][0]
        for chosen in (f"{order} client.corrections.proximal.mu=1", "own_initial_model")
    )
    sent = flat(experiment.load(RUN).initial_arrays())
    for k in range(3):
        assert pulled[k] - free[k] == pytest.approx(0.5 * (sent - drawn(k)), abs=1e-6)


def test_frozen_parameters_are_the_servers() -> None:
    def made(seed: int) -> nn.Module:
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
        model[0].requires_grad_(False)
        return model

    model, own = made(1), made(2)
    config = ConfigRecord({"server-round": 1})
    content = RecordDict({"config": config})
    rest = None, None, None, 1, None  # examples, task, optimizer, steps, batch size
    OwnInitialModel(RoundStart(model, *rest, content, RecordDict(), 0, lambda: own))  # type: ignore[arg-type]
    state = model.state_dict()
    for name, value in own.state_dict().items():
        expected = made(1).state_dict()[name] if name.startswith("0.") else value
        assert torch.equal(state[name], expected)
