"""Personal: what a node does for a model of its own, by which it is judged in the place of the server's.

Such a method changes two things on the node, and nothing on the server: how the local update is taken
(:meth:`Personal.train`), and what is made of the server's model before the node evaluates it on its own
test examples (:meth:`Personal.personalise`). What the node keeps lies in Flower's ``context.state``. So it
goes under any strategy; ``client.personal`` chooses it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from flwr.app import RecordDict
from torch import Tensor, nn

from .correction import Correction
from .examples import Examples, Inputs
from .tasks import Task


class Training(Protocol):
    """What a personal method may ask of a :class:`~clients.LocalTraining`."""

    @property
    def private(self) -> list[str]:
        """Patterns of what stays at the node."""

    def with_duration(self, *, epochs: int | None = None, steps: int | None = None) -> "Training":
        """Return the same training for so many epochs, or steps."""

    def rate(self, server_round: int) -> float:
        """Return the learning rate of a round."""

    def steps(self, size: int) -> int:
        """Return how many steps a node with ``size`` examples takes."""

    def batches(
        self, examples: Examples, device: torch.device, draws: torch.Generator
    ) -> Iterator[tuple[Inputs, Tensor]]:
        """Yield each step's inputs and targets."""

    def train_loop(
        self,
        model: nn.Module,
        examples: Examples,
        task: Task,
        server_round: int,
        seed: int,
        corrections: Sequence[Correction] = (),
        memory: RecordDict | None = None,
    ) -> dict[str, float]:
        """Take the steps of a round; return their metrics."""


@dataclass(frozen=True)
class LocalUpdate:
    """What a node does to the model in one round, before a personal method changes it.

    Parameters
    ----------
    training : how it trains
    model : at the values that it starts from; trained in place
    examples, task : the node's training examples, and what is learnt from them
    server_round : 1, 2, ...
    seed : decides the order of the examples, their augmentation, and whatever the model draws
    corrections : what is added to the loss or the gradients
    memory : the node's state, where a kept optimiser's lives on; None for none
    """

    training: Training
    model: nn.Module
    examples: Examples
    task: Task
    server_round: int
    seed: int
    corrections: Sequence[Correction] = ()
    memory: RecordDict | None = None

    def run(self) -> dict[str, float]:
        """Train the model; return the metrics, averaged over the examples seen."""
        return self.training.train_loop(
            self.model,
            self.examples,
            self.task,
            self.server_round,
            self.seed,
            self.corrections,
            self.memory,
        )


class Personal:
    """A method by which nodes have models of their own; by itself it changes nothing."""

    remembers: ClassVar[bool] = False  # whether it keeps anything in the node's state from round to round
    held_to_start: ClassVar[bool] = False  # whether the model before the first step is to be the server's

    def check(self, model: nn.Module, private: Sequence[str]) -> None:
        """Raise ``ValueError`` for a model, or for private layers, that it cannot work with."""

    def train(self, update: LocalUpdate) -> dict[str, float]:
        """Train ``update.model`` to what the server is sent; return the metrics."""
        return update.run()

    def personalise(
        self, model: nn.Module, examples: Examples, task: Task, batch_size: int | None, state: RecordDict
    ) -> None:
        """Turn the server's model, in place, into the one that the node is judged by.

        ``examples`` are the node's training examples, ``state`` is what it keeps.
        """
