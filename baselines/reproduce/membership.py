"""How well can it be told whether an example was among the training data? The attack of the GMA thesis.

Section 4.7: a logistic regression learns from a model's logits which examples the model was trained on.
Half of as many training as test examples teach it, the other half measure it. 50 % is chance only where
training and test examples are alike; on MNIST an untrained model is told apart in 52 % already. The thesis
leaves open how the examples are chosen and whether the logits are scaled; here they are drawn by the run's
seed, and standardised.
"""

import json
from pathlib import Path

import numpy as np
import torch
from torch import nn

from baselines.engine import checkpoint
from baselines.errors import UserError
from baselines.experiment import experiment
from clients import Examples
from clients.inputs import compute_outputs
from clients.turn import load
from strategies.shared.seeding import Purpose, generator


def attack_accuracy(folder: Path) -> float:
    """Return the attack's accuracy on the last checkpoint of a run, in [0, 1].

    Raises
    ------
    UserError : when the run has kept no checkpoint
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    saved = checkpoint.load(folder)
    if saved is None:
        raise UserError(f"{folder} has no checkpoint to attack: run it with checkpoint_every above 0")
    this = experiment.load(json.loads((folder / "environment.json").read_text())["overrides"])
    model = this.model()
    load(model, saved.arrays)
    draw = generator(this.settings.seed, Purpose.ATTACK)
    data, strangers = this.dataset, this.test_examples
    rows = np.concatenate([train for train, _ in this.partitions])
    count = min(len(rows), len(strangers))
    chosen = torch.from_numpy(draw.permutation(rows)[:count])
    members = Examples(data.train_inputs, data.train_targets, chosen, data.transform)
    others = Examples(
        strangers.inputs,
        strangers.targets,
        strangers.index[torch.from_numpy(draw.permutation(len(strangers))[:count])],
        strangers.transform,
    )
    half = count // 2
    logits = [_logits(model, examples) for examples in (members, others)]
    seen = np.concatenate([part[:half] for part in logits])
    unseen = np.concatenate([part[half:] for part in logits])
    attacker = make_pipeline(StandardScaler(), LogisticRegression(max_iter=5000))
    attacker.fit(seen, np.repeat([1, 0], half))
    return float(attacker.score(unseen, np.repeat([1, 0], count - half)))


@torch.no_grad()
def _logits(model: nn.Module, examples: Examples, batch_size: int = 1000) -> np.ndarray:
    """Return the model's outputs, [n, classes]."""
    model.eval()
    device = next(model.parameters()).device
    parts = [
        compute_outputs(model, examples.batch(slice(start, start + batch_size), device)[0]).cpu()
        for start in range(0, len(examples), batch_size)
    ]
    return np.asarray(torch.cat(parts).numpy())
