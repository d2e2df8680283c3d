"""Load a run's last model and its experiment, on which some of the papers' numbers are measured."""

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
    saved = checkpoint.load(folder)
    if saved is None:
        raise UserError(f"{folder} has no checkpoint to measure: run it with checkpoint_every above 0")
    experiment = load_experiment(json.loads((folder / "environment.json").read_text())["overrides"])
    model = experiment.model()
    load_arrays(model, saved.arrays)
    return experiment, model
