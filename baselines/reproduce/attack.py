"""Membership inference: the attack of the GMA thesis.

Section 4.7: a logistic regression learns from a model's logits which examples the model was trained on.
It learns from half of equally many training and test examples, and is measured on the other half. 50 % is
chance only if both have the same distribution: on MNIST, an untrained model already gives 52 %. The thesis
leaves open how examples are chosen and whether logits are scaled: here they are drawn by the run's seed,
and standardised. Of the attacker in figure 4.3 (b) it states only the 5,000 epochs; here these are steps of
gradient descent from zero, on all of its examples, at a rate of 0.1.
"""

from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from clients import Examples
from clients.examples import compute_outputs
from strategies.shared.seeding import Purpose, generator

from .last_model import last_model

EPOCHS, EVERY = 5000, 10  # of the figure; a curve has every tenth
RATE = 0.1


def attack_accuracy(folder: Path) -> float:
    """Return the attack's accuracy on the last checkpoint of a run, in [0, 1].

    Raises
    ------
    UserError : when the run has kept no checkpoint
    """
    from sklearn.linear_model import LogisticRegression

    seen, is_seen_member, unseen, is_unseen_member = _attack(folder)
    attacker = LogisticRegression(max_iter=5000)
    attacker.fit(seen, is_seen_member)
    return float(attacker.score(unseen, is_unseen_member))


def attack_loss(folder: Path) -> "pd.Series[float]":
    """Return the attacker's mean cross-entropy on the unseen half, by epoch, 0 to 5,000.

    Guessing gives ln 2.

    Raises
    ------
    UserError : when the run has kept no checkpoint
    """
    seen, is_seen_member, unseen, is_unseen_member = (torch.as_tensor(part) for part in _attack(folder))
    losses = descend(seen, is_seen_member, unseen, is_unseen_member)
    return pd.Series(losses, index=range(0, EPOCHS + 1, EVERY))


@torch.no_grad()
def descend(seen: Tensor, is_seen_member: Tensor, unseen: Tensor, is_unseen_member: Tensor) -> list[float]:
    """Return the loss on ``unseen`` before the first epoch, and after every tenth.

    The gradient of logistic regression is X' (sigmoid(X w + b) - y) / n.
    """
    weight, bias = seen.new_zeros(seen.shape[1]), seen.new_zeros(())
    targets, unseen_targets = is_seen_member.to(seen.dtype), is_unseen_member.to(seen.dtype)
    losses = []
    for epoch in range(EPOCHS + 1):
        if epoch % EVERY == 0:
            losses.append(float(binary_cross_entropy_with_logits(unseen @ weight + bias, unseen_targets)))
        error = torch.sigmoid(seen @ weight + bias) - targets
        weight -= RATE * (error @ seen) / len(seen)
        bias -= RATE * error.mean()
    return losses


def _attack(folder: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return standardised logits [n, classes] and membership [n], of the seen and of the unseen half."""
    from sklearn.preprocessing import StandardScaler

    experiment, model = last_model(folder)
    draw = generator(experiment.settings.seed, Purpose.ATTACK)
    data, strangers = experiment.dataset, experiment.test_examples
    rows = np.concatenate([train for train, _ in experiment.partitions])
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
    scaler = StandardScaler().fit(np.concatenate([part[:half] for part in logits]))
    seen, unseen = (
        scaler.transform(np.concatenate([part[piece] for part in logits]))
        for piece in (slice(half), slice(half, None))
    )
    return seen, np.repeat([1, 0], half), unseen, np.repeat([1, 0], count - half)


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
