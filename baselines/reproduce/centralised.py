"""Do federated and centralised training find the same model? Section 8.1 of the selective-averaging thesis.

"Do they produce model with similar parameters? Do the models make similar predictions on a common
validation set?" The models of a run's last round are compared with one trained centrally for as many
rounds, from the run's initial model. The next seed decides its batches, and which examples are set aside
for validation; it trains on all others. The same comparison of a centralised run shows by how much two
centralised models differ. (From another initial model a network's neurons come in another order.)

A run with several models counts by their mean, weighted by the nodes of each.
"""

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from baselines.experiment.experiment import Experiment
from baselines.experiment.experiment import load as load_experiment
from clients.evaluation import predict_classes
from strategies.shared.seeding import Purpose, torch_seed

from .last_model import last_models

Measure = Callable[[nn.Module, nn.Module, Experiment], float]


def same_predictions(folder: Path) -> float:
    """Return the share of test examples for which a run's and the centralised model predict one class."""
    return _compared(folder, agreement)


def parameter_distance(folder: Path) -> float:
    """Return ||w - c|| / ||c|| of a run's parameters w and those of the centralised model, c."""
    return _compared(folder, distance)


def _compared(folder: Path, measure: Measure) -> float:
    experiment, models = last_models(folder)
    other = load_experiment(f"{experiment.overrides} seed={experiment.settings.seed + 1}")
    central = centralised(other, experiment.model())
    values = [measure(model, central, experiment) for model, _ in models]
    return float(np.average(values, weights=[weight for _, weight in models]))


def agreement(model: nn.Module, central: nn.Module, experiment: Experiment) -> float:
    """Return the share of the experiment's test examples for which both predict one class."""
    (_, ours), (_, theirs) = (predict_classes(one, experiment.test_examples) for one in (model, central))
    return float((ours == theirs).double().mean())


def distance(model: nn.Module, central: nn.Module, experiment: Experiment) -> float:
    """Return ||w - c|| / ||c||."""
    w, c = (parameters_to_vector(one.parameters()).detach() for one in (model, central))
    return float((w - c).norm() / c.norm())


_TRAINED: dict[tuple[object, ...], Tensor] = {}  # one centralised model serves all cells of its seed


def centralised(experiment: Experiment, model: nn.Module) -> nn.Module:
    """Train ``model`` on all examples that the experiment's nodes hold, for its rounds; return it."""
    settings, start = experiment.settings, parameters_to_vector(model.parameters()).detach()
    rows = np.sort(np.concatenate([train for train, _ in experiment.partitions]))
    key = (start.numpy().tobytes(), rows.tobytes(), settings.seed, settings.rounds, *_client(experiment))
    if key not in _TRAINED:
        examples = experiment.node_data.examples(rows, 0, augmented=True)
        for server_round in range(1, settings.rounds + 1):
            seed = torch_seed(settings.seed, Purpose.LOCAL_TRAINING, server_round=server_round)
            experiment.training(
                model, examples, experiment.dataset.task, server_round=server_round, seed=seed
            )
        _TRAINED[key] = parameters_to_vector(model.parameters()).detach().clone()
    vector_to_parameters(_TRAINED[key].clone(), model.parameters())
    return model


def _client(experiment: Experiment) -> Iterable[tuple[str, str]]:
    """Return the settings of local training."""
    return (pair for pair in experiment.flat_configuration().items() if pair[0].startswith("client."))
