"""Load a run's last models and its experiment, on which some of the papers' numbers are measured."""

import json
from pathlib import Path

from torch import nn

from baselines.engine import checkpoint
from baselines.errors import UserError
from baselines.experiment.experiment import Experiment
from baselines.experiment.experiment import load as load_experiment
from clients.round import load_arrays


def last_model(folder: Path) -> tuple[Experiment, nn.Module]:
    """Return a run's experiment, and the model of its last checkpoint.

    Raises
    ------
    UserError : when the run has kept no checkpoint
    """
    saved, experiment = _saved(folder)
    model = experiment.model()
    load_arrays(model, saved.arrays)
    return experiment, model


def last_models(folder: Path) -> tuple[Experiment, list[tuple[nn.Module, int]]]:
    """Return a run's experiment, and the models that it evaluates with the weight of each.

    Raises
    ------
    UserError : when the run has kept no checkpoint
    """
    saved, experiment = _saved(folder)
    strategy, models = experiment.strategy(), []
    saved.restore(strategy)
    for name, arrays in strategy.models_to_evaluate(saved.arrays).items():
        model = experiment.model()
        load_arrays(model, arrays)
        models.append((model, strategy.model_weight(name)))
    return experiment, models


def _saved(folder: Path) -> tuple[checkpoint.Checkpoint, Experiment]:
    saved = checkpoint.load(folder)
    if saved is None:
        raise UserError(f"{folder} has no checkpoint to measure: run it with checkpoint_every above 0")
    return saved, load_experiment(json.loads((folder / "environment.json").read_text())["overrides"])
