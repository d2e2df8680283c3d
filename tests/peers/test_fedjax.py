"""Our Mime-lite, HypCluster and IFCA beside fedjax's, over whole rounds of a small problem.

Compared after each round: every model, and which one each node chose. fedjax's algorithms do the work, in
JAX, on a network and a loss written here. Tolerance: 1e-12 in float64.

Where the definitions differ:
* fedjax's batches have one size for all nodes: 120 examples hold all of a node's equally often.
* Mime-lite: fedjax weights updates and gradients by examples, Algorithm 1 has equal weights; here nodes have as
  many examples. fedjax's momentum is M <- g + beta M with lr (1 - beta), which is the paper's m = (1 - beta) M.
* HypCluster and IFCA begin with different models at fedjax and in the papers. Ours begin with one, and nodes
  draw among equals: fedjax begins with the models after our first round.
* IFCA is HypCluster with equal weights, which is what fedjax's has for nodes of one size.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord
from torch import Tensor

from baselines.runtimes.inline import InlineGrid
from helpers.peers.random_updates import close
from helpers.peers.small_problem import NODES, RATE, STEPS, balanced, data, our_app
from helpers.peers.small_rounds import make, ours, vector
from strategies import IFCA, FedAvg, HypCluster, MimeLite, Uniform

pytest.importorskip("fedjax", reason="fedjax is not installed: scripts/test-peers")
import fedjax  # type: ignore[import-not-found]
import jax  # type: ignore[import-not-found]
import jax.numpy as jnp  # type: ignore[import-not-found]
from fedjax.algorithms import hyp_cluster, mime_lite  # type: ignore[import-not-found]

jax.config.update("jax_enable_x64", True)
jax.tree_map = jax.tree_util.tree_map  # the name by which fedjax calls it
EVERY = 120  # a multiple of every node's number of examples
BATCHES = fedjax.ShuffleRepeatBatchHParams(batch_size=EVERY, num_steps=STEPS, num_epochs=None)
PASS = fedjax.PaddedBatchHParams(batch_size=EVERY)
ROUNDS = 6


def losses(parameters: list[Any], batch: dict[str, Any], rng: object) -> Any:
    """Return each example's cross-entropy under the small problem's network."""
    first, bias, last, last_bias = parameters
    z = jax.nn.relu(jnp.tanh(batch["x"] @ first.T + bias))
    return -jax.nn.log_softmax(z @ last.T + last_bias)[jnp.arange(len(batch["y"])), batch["y"]]


def parameters_of(arrays: ArrayRecord) -> list[Any]:
    return [jnp.asarray(array.numpy()) for array in arrays.values()]


def flat(parameters: Sequence[Any]) -> np.ndarray:
    return np.concatenate([np.asarray(p).reshape(-1) for p in parameters])


def clients_of(data_of: Callable[[int], tuple[Tensor, Tensor]]) -> list[tuple[bytes, Any, Any]]:
    sets = [{"x": x.numpy(), "y": y.numpy()} for x, y in map(data_of, range(NODES))]
    return [(b"%d" % k, fedjax.ClientDataset(s), jax.random.PRNGKey(k)) for k, s in enumerate(sets)]


def test_mime_lite() -> None:
    beta = 0.7
    actual, _ = ours(MimeLite(beta=beta, num_nodes=NODES), data_of=balanced)
    momentum = fedjax.optimizers.sgd(RATE * (1 - beta), momentum=beta)
    algorithm = mime_lite.mime_lite(losses, momentum, BATCHES, PASS, server_learning_rate=1.0)
    state = algorithm.init([jnp.asarray(p.detach().numpy()) for p in make().parameters()])
    for models in actual:
        state, _ = algorithm.apply(state, clients_of(balanced))
        close(models["model"], flat(state.params), rtol=1e-12, atol=1e-12)
    plain, _ = ours(FedAvg(weighting=Uniform(), num_nodes=NODES), data_of=balanced)
    assert np.abs(actual[-1]["model"] - plain[-1]["model"]).max() > 0.01


@pytest.mark.parametrize(
    ("kind", "data_of"), [(HypCluster, data), (IFCA, balanced)], ids=["HypCluster", "IFCA"]
)
def test_clusters(kind: type[IFCA], data_of: Callable[[int], tuple[Tensor, Tensor]]) -> None:
    strategy = kind(num_models=2, num_nodes=NODES, seed=1)
    grid, arrays = InlineGrid(our_app(make, data_of=data_of), NODES), ArrayRecord(make().state_dict())
    sgd, server = fedjax.optimizers.sgd(RATE), fedjax.optimizers.sgd(1.0)
    algorithm, state = hyp_cluster.hyp_cluster(losses, sgd, server, PASS, BATCHES), None
    for server_round in range(1, ROUNDS + 1):
        messages = strategy.configure_train(server_round, arrays, ConfigRecord(), grid)
        new, _ = strategy.aggregate_train(server_round, grid.send_and_receive(messages))
        assert new is not None
        arrays = new
        models = strategy.models_to_train(arrays)
        if state is None:
            state = algorithm.init([parameters_of(model) for model in models])
            continue
        state, chosen = algorithm.apply(state, clients_of(data_of))
        assert [int(chosen[b"%d" % k]["cluster_id"]) for k in range(NODES)] == [
            strategy._chosen[k] for k in range(NODES)
        ]
        for model, parameters in zip(models, state.cluster_params, strict=True):
            own = vector([torch.from_numpy(array.numpy()) for array in model.values()])
            close(own, flat(parameters), rtol=1e-12, atol=1e-12)
    assert len(set(strategy._chosen.values())) == 2  # both models have nodes
