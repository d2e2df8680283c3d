"""Every way to take rounds: ours as a run takes them, and the plain loop of ``plain.py`` on the same data.

A setting is an override string, as on the command line.
"""

import random
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord
from omegaconf import OmegaConf
from torch.nn.functional import cross_entropy

from baselines.apps import client_app_of, get_batched_trainer
from baselines.engine.evaluation import Evaluator
from baselines.experiment import experiment
from baselines.grids.inline import InlineGrid
from clients import LeastSquares, NextToken, optimizer_step
from clients.fast import cuda_graphs
from clients.fast import gradient as gradient_module
from helpers.agreement.plain import Data, Plain, Round
from helpers.agreement.tolerance import ROUNDING, TO_THE_BIT, Taken, Tolerance, hold, moved
from helpers.checkout import ROOT
from helpers.pretended_graph import pretended

CONF = ROOT / "tests" / "agreement" / "conf"
SETTING = "dataset=images num_nodes=3 seed=5 client.batch_size=8"  # 20, 20 and 19 examples: 8 + 8 + 4 or 3


@dataclass(frozen=True)
class Way:
    """One by one or batched, launched operation by operation, from a recording, or as a graph.

    Without a GPU a graph is a pretended one: it repeats the same operations on the same memory.
    """

    batched: bool = False
    recorded: bool = False
    captured: bool = False

    def __str__(self) -> str:
        first = "batched" if self.batched else "one by one"
        second = "captured" if self.captured else "recorded" if self.recorded else "eager"
        return f"{first}, {second}"


EAGER, RECORDED, BATCHED, BOTH = Way(), Way(recorded=True), Way(batched=True), Way(True, True)
CAPTURED, CAPTURED_BATCH = Way(captured=True), Way(batched=True, captured=True)
ONE_BY_ONE = EAGER, RECORDED, CAPTURED
WAYS = *ONE_BY_ONE, BATCHED, BOTH, CAPTURED_BATCH


def full(overrides: str) -> str:
    """Return the override string with the user's own options within reach."""
    return " ".join([shlex.quote(f'hydra.searchpath=["file://{CONF}"]'), SETTING, overrides])


def ours(overrides: str, way: Way = EAGER, rounds: int = 2, trace_after: int = 2) -> Taken:
    """Take rounds as a run does: the configured strategy, a grid in this process, our ClientApp."""
    overrides = full(overrides)
    with _prepared(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(gradient_module, "EAGER_STEPS_BEFORE_TRACE", trace_after if way.recorded else 10**9)
        patch.setattr(optimizer_step, "can_capture", lambda _: way.captured)
        if not torch.cuda.is_available():
            patch.setattr(cuda_graphs, "capture_graph", pretended)
        setup = experiment.load(overrides)
        strategy, arrays = setup.strategy(), setup.initial_arrays()
        strategy.set_server_data(Evaluator(setup))
        together = get_batched_trainer(overrides) if way.batched else None
        grid = InlineGrid(client_app_of(overrides), setup.settings.num_nodes, together)
        start, done = _tensors(arrays), []
        for t in range(1, rounds + 1):
            replies = grid.send_and_receive(strategy.configure_train(t, arrays, setup.train_config(), grid))
            assert not [reply.error for reply in replies if reply.has_error()]
            after, metrics = strategy.aggregate_train(t, replies)
            assert after is not None
            arrays = after
            metrics_shown = {name: float(metrics[name]) for name in ("loss", "accuracy") if name in metrics}
            done.append(Round(_tensors(arrays), metrics_shown))
    return Taken(start, done, batched=way.batched and grid.answering.batched_trainer is not None)


@lru_cache(maxsize=2)
def plainly(overrides: str, kind: type[Plain] = Plain, rounds: int = 2) -> list[Round]:
    """Take the same rounds in the plain loop."""
    with _prepared():
        setup = experiment.load(full(overrides))
        wanted = setup.cfg
        if wanted.autocast or wanted.channels_last:  # the loop itself sees to that
            setup = experiment.load(full(f"{overrides} autocast=null channels_last=false"))
        torch.set_num_threads(setup.settings.threads)
        device, task, data = setup.device, setup.dataset.task, []
        for k in range(setup.settings.num_nodes):
            rows = setup.node(k).train
            inputs = rows.inputs[rows.index]
            inputs = rows.transform(inputs) if rows.transform else inputs
            data.append(Data(inputs.to(device), rows.targets[rows.index].to(device), rows.augment))
        losses: dict[str, object] = {}
        if isinstance(task, LeastSquares):
            losses["loss"] = lambda outputs, targets: 0.5 * (outputs - targets).square().sum()
            losses["report"] = lambda loss, size: 2 * task.rows_per_node * loss
        elif isinstance(task, NextToken):
            losses["loss"] = lambda outputs, targets: (
                cross_entropy(outputs.transpose(1, 2), targets, reduction="none").mean(1).mean()
            )
        elif setup.cfg.dataset.load._target_ == "helpers.agreement.users.smoothed":
            losses["loss"] = torch.nn.CrossEntropyLoss(label_smoothing=0.1)
        loop = kind(
            setup.model().to(
                memory_format=torch.channels_last if wanted.channels_last else torch.preserve_format
            ),
            data,
            setup.training.optimizer,
            OmegaConf.to_container(setup.cfg.client, resolve=True),  # type: ignore[arg-type]
            seed=setup.settings.seed,
            autocast=torch.bfloat16 if wanted.autocast else None,
            server_inputs=setup.validation_examples.batch(slice(None), device)[0],
            **losses,  # type: ignore[arg-type]
        )
        return loop.rounds(rounds)


def compare(
    overrides: str,
    way: Way = EAGER,
    kind: type[Plain] = Plain,
    *,
    rounds: int = 2,
    batches: bool | None = True,
    one_by_one: Tolerance = TO_THE_BIT,
    batched: Tolerance = ROUNDING,
) -> None:
    """Hold a way beside the plain loop.

    ``batches`` says whether nodes can be batched: what cannot has to be taken one by one, to the bit, where
    it was asked for otherwise. None: either, as long as the numbers are right.
    """
    actual, expected = ours(overrides, way, rounds), plainly(overrides, kind, rounds)
    if way.batched and batches is not None:
        assert actual.batched == batches
    assert moved(expected, actual.start), "a setting that changes nothing tells nothing"
    hold(actual, expected, batched if actual.batched else one_by_one)


def _tensors(arrays: ArrayRecord) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(np.array(array.numpy())) for name, array in arrays.items()}


@contextmanager
def _prepared() -> Iterator[None]:
    """Start as a new process does: a new model, nothing recorded, Python's generator seeded."""
    experiment.load.cache_clear()
    threads, python = torch.get_num_threads(), random.getstate()
    random.seed(9)
    try:
        yield
    finally:
        random.setstate(python)
        torch.set_num_threads(threads)
