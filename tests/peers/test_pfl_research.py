"""Our SCAFFOLD and FedProx beside those of pfl-research, on its simulated backend.

Compared: the model, the server's variate c and every node's c_k after each of eight rounds, for both
options, with all nodes and with two of five. Tolerance: 1e-6; pfl keeps differences of models in float32
whatever the model is (so the model is float64, what travels float32), and option 2 multiplies them by 1 /
(steps * lr).

Where the definitions differ (pfl 0.6.0):

* The sign of pfl's variates. It takes them from y - w_t where Algorithm 1 has w_t - y, and in option 1
  from a step along minus the gradient, yet adds c - c_k to the gradient as Algorithm 1 does. So after one
  round its variates are exactly minus ours, and from the second on it corrects the wrong way. With the
  sign of the difference turned over (``Descending`` below; all else is pfl's) everything is equal, round
  by round. fluke's SCAFFOLD, and the algorithm in plain arithmetic, have our sign.
* In option 1 pfl keeps every c_k in one and the same memory (``get_model_difference`` without ``clone``),
  so that with the storage in memory each node ends the round with the variate of the last one.
  ``Descending`` makes copies.
"""

from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from helpers.peers.random_updates import close
from helpers.peers.small_problem import NODES, RATE, STEPS, data
from helpers.peers.small_rounds import ROUNDS, Vectors, compare, make, ours, vector
from strategies import FedProx, Scaffold, Uniform

pytest.importorskip("pfl", reason="pfl is not installed: scripts/test-peers")
from pfl.aggregate.simulate import SimulatedBackend  # type: ignore[import-not-found]
from pfl.algorithm.base import FederatedNNAlgorithm  # type: ignore[import-not-found]
from pfl.algorithm.fedprox import FedProx as PflFedProx  # type: ignore[import-not-found]
from pfl.algorithm.fedprox import FedProxParams
from pfl.algorithm.scaffold import SCAFFOLD, SCAFFOLDParams  # type: ignore[import-not-found]
from pfl.callback.base import TrainingProcessCallback  # type: ignore[import-not-found]
from pfl.data.dataset import Dataset  # type: ignore[import-not-found]
from pfl.data.federated_dataset import FederatedDataset  # type: ignore[import-not-found]
from pfl.data.user_state import InMemoryUserStateStorage  # type: ignore[import-not-found]
from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams  # type: ignore[import-not-found]
from pfl.metrics import Metrics, Weighted  # type: ignore[import-not-found]
from pfl.model.pytorch import PyTorchModel  # type: ignore[import-not-found]
from pfl.stats import MappedVectorStatistics  # type: ignore[import-not-found]

MU = 0.8


class Judged(nn.Module):
    """The model with the two methods that pfl asks for."""

    def __init__(self) -> None:
        super().__init__()
        self.net = make()

    def loss(self, inputs: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(self.net(inputs), targets)

    @torch.no_grad()
    def metrics(self, inputs: Tensor, targets: Tensor) -> dict[str, Weighted]:
        return {"loss": Weighted(float(self.loss(inputs, targets)), 1)}


class Descending(PyTorchModel):  # type: ignore[misc]
    """pfl's model whose differences are w_t - y, as Algorithm 1 has them."""

    def get_model_difference(self, other_parameters, clone=False):  # type: ignore[no-untyped-def]
        return super().get_model_difference(other_parameters, clone).apply_elementwise(torch.neg)

    def apply_model_update(self, statistics):  # type: ignore[no-untyped-def]
        return super().apply_model_update(MappedVectorStatistics({k: -v for k, v in statistics.items()}))


class Notes(TrainingProcessCallback):  # type: ignore[misc]
    """Notes what there is after each round."""

    def __init__(self, algorithm: FederatedNNAlgorithm, storage: InMemoryUserStateStorage) -> None:
        self.algorithm, self.storage = algorithm, storage
        self.history: list[Vectors] = []

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):  # type: ignore[no-untyped-def]
        vectors = {"model": vector(list(model.pytorch_model.parameters()))}
        if isinstance(self.algorithm, SCAFFOLD):
            vectors["server"] = vector([c for _, c in self.algorithm._server_c.items()])
            for (user, _), own in self.storage._cache.items():
                vectors[f"node {user}"] = vector([c for _, c in own.items()])
        self.history.append(vectors)
        return False, Metrics()


def theirs(
    algorithm: FederatedNNAlgorithm,
    sampled: list[list[int]],
    model_of: type[PyTorchModel] = PyTorchModel,
    **params: object,
) -> list[Vectors]:
    storage = InMemoryUserStateStorage()
    of_class, more = FedProxParams, params
    if isinstance(algorithm, SCAFFOLD):
        of_class, more = SCAFFOLDParams, {**params, "population": NODES, "user_state_storage": storage}
    users = iter([k for chosen in sampled for k in chosen] + [0] * NODES)
    datasets = [Dataset(data(k), user_id=str(k)) for k in range(NODES)]
    federated = FederatedDataset(lambda k: datasets[k], partial(next, users))
    judged, notes = Judged(), Notes(algorithm, storage)
    algorithm.run(
        algorithm_params=of_class(
            central_num_iterations=len(sampled),
            evaluation_frequency=len(sampled) + 1,
            train_cohort_size=len(sampled[0]),
            val_cohort_size=None,
            **more,
        ),
        backend=SimulatedBackend(training_data=federated, val_data=federated),
        model=model_of(judged, torch.optim.SGD, torch.optim.SGD(judged.parameters(), lr=1.0)),
        model_train_params=NNTrainHyperParams(
            local_num_epochs=STEPS, local_learning_rate=RATE, local_batch_size=None
        ),
        model_eval_params=NNEvalHyperParams(local_batch_size=None),
        callbacks=[notes],
        send_metrics_to_platform=False,
    )
    return notes.history


@pytest.mark.parametrize("nodes_per_round", [None, 2], ids=["all nodes", "two of five"])
@pytest.mark.parametrize("option", [1, 2])
def test_scaffold_variate_by_variate(option: int, nodes_per_round: int | None) -> None:
    actual, sampled = ours(Scaffold(option=option, num_nodes=NODES, nodes_per_round=nodes_per_round))
    first = option == 1
    expected = theirs(SCAFFOLD(), sampled, Descending, use_gradient_as_control_variate=first)
    assert len(expected) == ROUNDS
    compare(actual, expected, 1e-6)


@pytest.mark.parametrize("option", [1, 2])
def test_as_released_its_variates_have_the_other_sign(option: int) -> None:
    actual, sampled = ours(Scaffold(option=option, num_nodes=NODES))
    expected = theirs(SCAFFOLD(), sampled, use_gradient_as_control_variate=option == 1)
    close(expected[0]["model"], actual[0]["model"], rtol=1e-6, atol=1e-6)
    kept_last = {f"node {k}": f"node {NODES - 1}" for k in range(NODES)} if option == 1 else {}
    for name in set(actual[0]) - {"model"}:
        close(-expected[0][name], actual[0][kept_last.get(name, name)], rtol=1e-6, atol=1e-6)
    assert np.abs(expected[1]["model"] - actual[1]["model"]).max() > 0.01


@pytest.mark.parametrize("nodes_per_round", [None, 2], ids=["all nodes", "two of five"])
def test_fedprox(nodes_per_round: int | None) -> None:
    strategy = FedProx(mu=MU, weighting=Uniform(), num_nodes=NODES, nodes_per_round=nodes_per_round)
    actual, sampled = ours(strategy)
    compare(actual, theirs(PflFedProx(), sampled, mu=MU), 1e-6)
