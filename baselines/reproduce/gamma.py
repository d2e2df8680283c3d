"""How far are the nodes' data from iid? Gamma = F* - sum_k p_k F_k*, equation 1.3 of the selective-averaging
thesis (Li et al., *On the Convergence of FedAvg on Non-IID Data*, ICLR 2020).

F_k is the mean loss over the examples of node k, p_k its share of all examples, F = sum_k p_k F_k, and * the
minimum. A node whose labels a model can separate has no minimum: its loss falls to 0 as parameters grow. So
F and F_k include the run's weight decay, (decay / 2) ||w||^2, which also makes a convex loss strongly convex,
as the theorem asks. Then F(w) - F* <= ||grad F(w)||^2 / (2 decay), which bounds the error of L-BFGS.
"""

from pathlib import Path

import numpy as np
import torch
from torch import nn

from baselines.errors import UserError
from baselines.experiment.experiment import Experiment
from baselines.reports.runs import by_round
from clients import Examples, Task
from clients.examples import compute_outputs

from .last_model import last_model

ERROR = 1e-3  # of a minimum, at most
STEPS, MOST = 20, 100  # of L-BFGS before the bound is looked at, and how often
LEVEL = 0.88  # a test accuracy that FedAvg reaches with every share of balanced data


def degree_of_non_iid(folder: Path) -> float:
    """Return Gamma of a run's nodes, to within ``ERROR``.

    Raises
    ------
    UserError : for a run without weight decay, or if L-BFGS does not converge
    """
    experiment, _ = last_model(folder)
    decay = float(experiment.flat_configuration()["client.optimizer.weight_decay"])
    if decay <= 0:
        raise UserError(f"{folder} has no weight decay, and its nodes may have no minimum: set it")
    nodes = [experiment.node(k).train for k in range(len(experiment.partitions))]
    sizes = np.array([len(train) for train in nodes])
    minima = [_minimum(experiment, train, decay) for train in nodes]
    return _overall(experiment, decay) - float(np.average(minima, weights=sizes))


_OVERALL: dict[tuple[object, ...], float] = {}  # one F* serves all ways to deal the same examples


def _overall(experiment: Experiment, decay: float) -> float:
    """Return F*, over all examples that the nodes hold."""
    rows = np.sort(np.concatenate([train for train, _ in experiment.partitions]))
    key = (rows.tobytes(), experiment.kind_of_data, decay)
    if key not in _OVERALL:
        examples = experiment.node_data.examples(rows, 0)
        _OVERALL[key] = _minimum(experiment, examples, decay)
    return _OVERALL[key]


def _minimum(experiment: Experiment, examples: Examples, decay: float) -> float:
    return minimum(experiment.model(), experiment.dataset.task, examples, decay)


def minimum(model: nn.Module, task: Task, examples: Examples, decay: float) -> float:
    """Return the minimum of the mean loss plus (decay / 2) ||w||^2, from above and to within ``ERROR``.

    ``model`` is convex in its parameters, and is left at the minimum.

    Raises
    ------
    UserError : if it is not reached
    """
    parameters = list(model.parameters())
    inputs, targets = examples.batch(slice(None), parameters[0].device)
    search = torch.optim.LBFGS(
        parameters, max_iter=STEPS, tolerance_grad=0, tolerance_change=0, line_search_fn="strong_wolfe"
    )

    def objective() -> torch.Tensor:
        search.zero_grad()
        loss, _ = task(compute_outputs(model, inputs), targets)
        mean = loss / len(targets) if task.sums else loss
        value: torch.Tensor = mean + decay / 2 * sum(p.square().sum() for p in parameters)
        value.backward()  # type: ignore[no-untyped-call]
        return value

    for _ in range(MOST):
        search.step(objective)  # type: ignore[no-untyped-call]
        value = float(objective().detach())
        if sum(float(p.grad.square().sum()) for p in parameters if p.grad is not None) <= 2 * decay * ERROR:
            return value
    raise UserError(f"L-BFGS is not within {ERROR} of the minimum after {MOST * STEPS} steps")


def rounds_to_level(folder: Path) -> int:
    """Return the first round whose test accuracy is ``LEVEL`` or more.

    Raises
    ------
    UserError : for a run that never reaches it
    """
    accuracy = by_round(folder, "test", "accuracy")
    reached = accuracy.index[accuracy >= LEVEL]
    if not len(reached):
        raise UserError(f"{folder} never reaches a test accuracy of {LEVEL}: run it for more rounds")
    return int(reached[0])
