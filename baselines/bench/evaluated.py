"""Plain loops in processes that also evaluate: each takes its share of the test set after each round."""

import time

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from baselines.experiment import experiment

from .workers import Arrays, Processes

BATCH_SIZE = 1000


class Evaluated(Processes):
    """Rounds of federated averaging by hand, evaluated before the first and after each."""

    def __call__(self) -> float:
        """Return the seconds of all rounds."""
        began = time.perf_counter()
        self._evaluate()
        for _ in range(self.rounds):
            self._round()
            self._evaluate()
        return time.perf_counter() - began

    def _evaluate(self) -> tuple[float, float]:
        """Return the loss and the accuracy."""
        pending = [
            pool.submit(_sums, self.setting, self.state, k, len(self.pools))
            for k, pool in enumerate(self.pools)
        ]
        loss, correct, total = np.sum([future.result() for future in pending], axis=0)
        return loss / total, correct / total


@torch.no_grad()
def _sums(setting: str, state: Arrays, share: int, shares: int) -> tuple[float, float, int]:
    """Return the loss, the right predictions and the examples of a share of the batches."""
    torch.set_num_threads(1)
    this = experiment.load(setting)
    model = this.node_model
    model.load_state_dict({name: torch.from_numpy(values) for name, values in state.items()})
    model.eval()
    examples, loss, correct, total = this.test_examples, 0.0, 0.0, 0
    for start in range(share * BATCH_SIZE, len(examples), shares * BATCH_SIZE):
        inputs, targets = examples.batch(slice(start, start + BATCH_SIZE), this.device)
        outputs = model(inputs)
        loss += float(cross_entropy(outputs, targets, reduction="sum"))
        correct += float((outputs.argmax(1) == targets).sum())
        total += len(targets)
    return loss, correct, total
