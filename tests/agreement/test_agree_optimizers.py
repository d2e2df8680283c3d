"""Every client optimiser, and every way to drive one: epochs or steps, clipped, decayed, kept."""

import pytest
from ways import BATCHED, CAPTURED, CAPTURED_BATCH, ONE_BY_ONE, RECORDED, WAYS, Way, compare

from baselines.experiment.overrides import CONF, SHARED

MLP = "model=mlp model.hidden=8 client.local_epochs=2"
TORCHS = "client_optimizer=adam client.optimizer.lr=0.01 client.optimizer._target_=torch.optim"
CLIENTS = {  # of both groups; and whether nodes can be batched: not with what looks at whole layers
    "sgd": (f"{MLP} client_optimizer=sgd", True),
    "adam": (f"{MLP} client_optimizer=adam", True),
    "adamp": (f"{MLP} client_optimizer=adamp client.optimizer.weight_decay=0.01", False),
    "full_batch": ("model=mlp client=full_batch client.local_steps=5 client.batch_size=null", True),
    "rmsgd": (
        "model=lenet client_optimizer=rmsgd dataset.shape=[1,28,28] dataset.load.size=15 client.local_epochs=2",
        False,
    ),
}
DRIVEN = {
    "momentum": (f"{MLP} client.optimizer.momentum=0.9 client.optimizer.weight_decay=0.01", True),
    "nesterov": (f"{MLP} client.optimizer.momentum=0.9 +client.optimizer.nesterov=true", True),
    "dampened": (f"{MLP} client.optimizer.momentum=0.9 +client.optimizer.dampening=0.5", True),
    "maximising": (f"{MLP} client.optimizer.lr=0.01 +client.optimizer.maximize=true", True),
    "momentum, clipped, decayed": (
        f"{MLP} client.optimizer.momentum=0.9 client.max_grad_norm=0.3 client.schedule.gamma=0.5",
        True,
    ),
    "momentum, kept": (f"{MLP} client.optimizer.momentum=0.9 client.keep_optimizer=true", False),
    "amsgrad": (f"{MLP} client_optimizer=adam +client.optimizer.amsgrad=true", True),
    "adamw": (f"{MLP} {TORCHS}.AdamW", True),
    "adagrad": (f"{MLP} {TORCHS}.Adagrad", True),
    "rmsprop": (f"{MLP} {TORCHS}.RMSprop", True),
    "clipped": (f"{MLP} client.max_grad_norm=0.3", True),
    "steps": ("model=mlp client.local_epochs=null client.local_steps=7", True),
    "whole": (f"{MLP} client.batch_size=null", True),
    "whole, clipped": (f"{MLP} client.batch_size=100 client.max_grad_norm=0.1", True),
    "decayed": (f"{MLP} client.schedule.gamma=0.5", True),
    "kept": (f"{MLP} client_optimizer=adam client.keep_optimizer=true", False),
}


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("client", CLIENTS)
def test_every_optimizer(client: str, way: Way) -> None:
    overrides, batches = CLIENTS[client]
    compare(overrides, way, batches=batches)


def test_no_optimizer_is_missing() -> None:
    others = {*SHARED, "local", "keep_trace"}  # whose steps are its own: tests/clients/test_keep_trace.py
    there = {
        path.stem for group in ("client_optimizer", "client") for path in (CONF / group).glob("*.yaml")
    }
    assert CLIENTS.keys() == there - others


@pytest.mark.parametrize("way", [RECORDED, BATCHED, CAPTURED, CAPTURED_BATCH], ids=str)
@pytest.mark.parametrize("case", DRIVEN)
def test_every_way_to_drive_one(case: str, way: Way) -> None:
    overrides, batches = DRIVEN[case]
    compare(overrides, way, batches=batches, rounds=3)


@pytest.mark.parametrize("way", [*ONE_BY_ONE, BATCHED], ids=str)
def test_nodes_of_very_different_sizes(way: Way) -> None:
    """The Dirichlet distribution leaves some nodes a batch or two, and others many."""
    compare("dataset=images partitioner=dirichlet partitioner.alpha=0.1 num_nodes=5 model=mlp", way)
