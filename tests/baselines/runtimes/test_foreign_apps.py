"""The strategies serve a ClientApp that knows nothing of this project, in an app that is not ours."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import strategy as flower
from torch import nn

from baselines.grids.inline import InlineGrid
from helpers.checkout import ROOT
from strategies import FedAvg, FedExP

pytestmark = pytest.mark.runtime

NODES = 4
app = ClientApp()  # as in Flower's own PyTorch quickstart


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(6, 8)
        self.fc2 = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc2(torch.relu(self.fc1(x)))


def load_data(partition_id: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return 20, 30, 40, ... examples; each partition has labels of its own, so that updates disagree."""
    generator = torch.Generator().manual_seed(partition_id)
    x = torch.randn(20 + 10 * partition_id, 6, generator=generator)
    return x, ((x[:, 0] > 0).long() + (x[:, 1] > 0).long() + partition_id) % 3


@app.train()
def train(msg: Message, context: Context) -> Message:
    model = Net()
    model.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    x, y = load_data(context.node_config["partition-id"])
    optimizer = torch.optim.SGD(model.parameters(), lr=msg.content["config"]["lr"])
    for _ in range(5):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    metrics = MetricRecord({"train_loss": loss.item(), "num-examples": len(x)})
    content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
    return Message(content=content, reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context) -> Message:
    model = Net()
    model.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    x, y = load_data(context.node_config["partition-id"])
    with torch.no_grad():
        loss = nn.functional.cross_entropy(model(x), y).item()
    metrics = MetricRecord({"eval_loss": loss, "num-examples": len(x)})
    return Message(content=RecordDict({"metrics": metrics}), reply_to=msg)


def start(strategy: flower.Strategy, rounds: int = 4) -> flower.Result:
    torch.manual_seed(0)
    return strategy.start(
        grid=InlineGrid(app, NODES),
        initial_arrays=ArrayRecord(Net().state_dict()),
        train_config=ConfigRecord({"lr": 0.5}),
        num_rounds=rounds,
    )


def losses(result: flower.Result) -> list[float]:
    return [record["eval_loss"] for record in result.evaluate_metrics_clientapp.values()]


def test_fedavg_is_flowers_fedavg_on_a_quickstart_client() -> None:
    ours = start(FedAvg())
    theirs = start(flower.FedAvg(min_available_nodes=NODES))
    for name, array in theirs.arrays.items():
        np.testing.assert_allclose(ours.arrays[name].numpy(), array.numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(losses(ours), losses(theirs), rtol=1e-5)
    for server_round, record in theirs.train_metrics_clientapp.items():
        ours_then = ours.train_metrics_clientapp[server_round]
        assert ours_then["train_loss"] == pytest.approx(record["train_loss"], rel=1e-5)


def test_fedexp_extrapolates_on_a_quickstart_client() -> None:
    """Asked for its partition, a client without a query function errs, and is numbered instead."""
    result = start(FedExP(query_partitions=True))
    train = result.train_metrics_clientapp
    assert [record["replies"] for record in train.values()] == [NODES] * 4
    assert min(record["step-size"] for record in train.values()) >= 1
    assert max(record["step-size"] for record in train.values()) > 1
    assert len(losses(result)) == 4


FOREIGN = """
import json
import sys

from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation
import numpy as np

from strategies import FedExP

client_app = ClientApp()
server_app = ServerApp()


@client_app.train()
def train(message: Message, context: Context) -> Message:
    w = message.content["arrays"]["w"].numpy().copy()
    w[int(context.node_config["partition-id"])] -= 1.0  # orthogonal steps of length 1
    metrics = MetricRecord({"num-examples": 5})
    content = RecordDict({"arrays": ArrayRecord({"w": Array(w)}), "metrics": metrics})
    return Message(content, reply_to=message)


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    strategy = FedExP(num_nodes=3, federated_evaluation=False, average_last=1)
    start = ArrayRecord({"w": Array(np.zeros(3))})
    result = strategy.start(grid=grid, initial_arrays=start, num_rounds=2)
    step_sizes = [record["step-size"] for record in result.train_metrics_clientapp.values()]
    with open(sys.argv[1], "w") as file:
        json.dump({"w": result.arrays["w"].numpy().tolist(), "step_sizes": step_sizes}, file)


resources = {"client_resources": {"num_cpus": 1}, "init_args": {"address": "local", "num_cpus": 2}}
run_simulation(server_app, client_app, num_supernodes=3, backend_config=resources)
"""


@pytest.mark.slow
def test_fedexp_in_a_foreign_app_on_flowers_simulation_engine(tmp_path: Path) -> None:
    """Three orthogonal steps of length 1: eta = 3 / (2 * 3 * (1/3 + epsilon)), above 1 a round."""
    (tmp_path / "foreign.py").write_text(FOREIGN)
    done = subprocess.run(
        [sys.executable, "foreign.py", "result.json"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads((tmp_path / "result.json").read_text())
    epsilon = FedExP().step_size.epsilon
    eta = max(1.0, 3 / (2 * 3 * (1 / 3 + epsilon)))
    assert result["step_sizes"] == pytest.approx([eta, eta])
    assert result["w"] == pytest.approx([-2 * eta / 3] * 3)
