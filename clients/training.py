"""LocalTraining: the one local loop that every method shares."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import repeat
from typing import ClassVar, Self

import torch
from flwr.app import RecordDict
from torch import Tensor, nn

from strategies.shared import protocol
from strategies.shared.checks import require, require_count
from strategies.shared.divergence import void_measures

from . import chosen, optimizer_state, stragglers
from .correction import Correction, OptimizerOf
from .draws import seed_model
from .examples import Examples
from .fast import graphs
from .fast.bare_optimizer import spare_compiler
from .inputs import Inputs
from .optimizer_state import keep, prepare
from .personal import LocalUpdate, Personal
from .schedules import Exponential, Schedule
from .tasks import Task
from .terms import step_of
from .update import Update, captured_update

HOST = torch.device("cpu")


@dataclass(frozen=True, kw_only=True)
class LocalTraining:
    """How a node trains in one round.

    Parameters
    ----------
    optimizer : builds a ``torch.optim`` optimiser from the parameters
    local_epochs, local_steps : how long to train; exactly one of them is set
    batch_size : examples per step; None takes all of the node's examples at once
    schedule : factor on the optimiser's learning rate, by round
    stragglers : the probability that a node does less in a round (:mod:`clients.stragglers`)
    least_work : how many epochs (or steps) it takes at least
    max_grad_norm : clip the gradient's global norm to this before each step; None does not
    private : patterns of what stays at the node from round to round (:mod:`clients.private`)
    personal : how nodes come to models of their own (:mod:`clients.personal`); None for the server's
    keep_optimizer : momentum and moments stay at the node; False starts each round with fresh ones
    corrections : by any name, what begins a :class:`~clients.Correction` of each round, besides those that
        the message asks for; they act in this order
    trace : record repeated steps; False keeps to autograd, for a model that reads what changes elsewhere
    """

    corrected: ClassVar[bool] = True  # whether corrections can act on its steps
    optimizer: OptimizerOf
    local_epochs: int | None = 1
    local_steps: int | None = None
    batch_size: int | None = 32
    schedule: Schedule = Exponential()
    stragglers: float = 0.0
    least_work: int = 1
    max_grad_norm: float | None = None
    private: list[str] = field(default_factory=list)
    personal: Personal | None = None
    keep_optimizer: bool = False
    corrections: Mapping[str, chosen.Begin] = field(default_factory=dict)
    trace: bool = True

    def __post_init__(self) -> None:
        """Refuse counts and rates out of range, in one line each."""
        if (self.local_epochs is None) == (self.local_steps is None):
            raise ValueError(
                f"client.local_epochs={self.local_epochs} and client.local_steps={self.local_steps}: "
                "set exactly one of them, the other to null"
            )
        for name in ("local_epochs", "local_steps", "batch_size"):
            require_count(f"client.{name}", getattr(self, name), optional=True)
        stragglers.check(self.stragglers, self.least_work, *self.work)
        norm = self.max_grad_norm
        require(norm is None or norm > 0, "client.max_grad_norm", norm, "above 0, or null")
        spare_compiler()
        optimizer_state.check(self.optimizer)
        chosen.check(self.corrections)
        if isinstance(self.optimizer, partial):  # Hydra's kind examines its target at every call
            plain = partial(self.optimizer.func, *self.optimizer.args, **self.optimizer.keywords)
            object.__setattr__(self, "optimizer", plain)

    @property
    def remembers(self) -> bool:
        """Whether a node keeps anything from round to round."""
        of_rounds = any(map(chosen.remembers, (self.personal, *self.corrections.values())))
        return self.keep_optimizer or bool(self.private) or of_rounds

    @property
    def work(self) -> tuple[str, int]:
        """What a node does in a round: the setting's name, and how much."""
        unit = "local_epochs" if self.local_epochs else "local_steps"
        return unit, getattr(self, unit)

    @property
    def lr(self) -> float:
        """The optimiser's learning rate, before the schedule."""
        (group,) = self.optimizer([nn.Parameter(torch.zeros(1))]).param_groups
        return float(group["lr"])

    @torch.no_grad()
    def __call__(
        self,
        model: nn.Module,
        examples: Examples,
        task: Task,
        *,
        server_round: int,
        seed: int,
        corrections: Sequence[Correction] = (),
        memory: RecordDict | None = None,
    ) -> dict[str, float]:
        """Train ``model`` in place; return the metrics, averaged over the examples seen.

        ``seed`` decides the examples' order and augmentation, and what the model draws (dropout);
        ``memory`` is where a kept optimiser's state lives on.
        """
        update = LocalUpdate(self, model, examples, task, server_round, seed, corrections, memory)
        return self.personal.train(update) if self.personal else update.taken()

    @torch.no_grad()
    def loop(self, update: LocalUpdate) -> dict[str, float]:
        """Take the steps of a local update, whatever the personal method; return its metrics."""
        model, corrections = update.model, update.corrections
        parameters = [p for p in model.parameters() if p.requires_grad]
        device = parameters[0].device
        optimizer = self.optimizer(parameters)
        kept = update.memory if self.keep_optimizer else None
        rate = prepare(optimizer, self.schedule(update.server_round), kept)
        edited = corrections, self.max_grad_norm
        if self.trace and graphs.capturable(device) and not any(c.alone for c in corrections):
            move = captured_update(parameters, optimizer, *edited, fresh=kept is None)
        else:
            move = Update(parameters, optimizer, None, *edited)
        end_epoch = getattr(optimizer, "epoch_step", None)
        per_epoch = self._steps_per_epoch(len(update.examples))
        draws = torch.Generator().manual_seed(update.seed)
        seed_model(update.seed, device)
        model.train()
        gradient = step_of(model, update.task, corrections, self.trace, move.after)
        totals: dict[str, Tensor] = {}
        seen = steps = 0
        for inputs, targets in self.batches(update.examples, device, draws):
            gradients, sums = gradient(parameters, inputs, targets)
            move(gradients)
            for name, value in sums.items():
                totals[name] = totals[name] + value if name in totals else value
            seen += targets.shape[0]
            steps += 1
            if end_epoch is not None and steps % per_epoch == 0:
                end_epoch()
            if corrections and any(correction.done(parameters) for correction in corrections):
                break
        if kept is not None:
            keep(optimizer, kept)
        means = void_measures({name: float(total) / seen for name, total in totals.items()})
        return {**means, protocol.LOCAL_STEPS: steps, protocol.LEARNING_RATE: rate}

    def _steps_per_epoch(self, size: int) -> int:
        return -(-size // (self.batch_size or size or 1))

    def lasting(self, *, epochs: int | None = None, steps: int | None = None) -> Self:
        """Return the same training for so many epochs, or steps, however slow the node is."""
        return replace(self, local_epochs=epochs, local_steps=steps, stragglers=0.0)

    def steps(self, size: int) -> int:
        """Return how many steps a node with ``size`` examples takes in a round."""
        steps = self.local_steps or self._steps_per_epoch(size) * (self.local_epochs or 0)
        return steps if size else 0

    def idle_corrections(self, sizes: Iterable[int]) -> list[str]:
        """Return a line for each correction that does nothing at nodes with so many examples each."""
        work = {(self.steps(size), self._steps_per_epoch(size)) for size in sizes if size}
        return list(chosen.without_effect(self.corrections, work))

    def positions(self, size: int, draws: torch.Generator, device: torch.device = HOST) -> Iterator[Tensor]:
        """Yield which of its examples each step takes: reshuffled every epoch, the last batch shorter.

        An epoch's order goes to ``device`` as a whole.
        """
        for step in range(self.steps(size)):
            place = step % self._steps_per_epoch(size)
            if place == 0:
                shuffled = torch.randperm(size, generator=draws).to(device)
                batches = torch.split(shuffled, self.batch_size or size)
            yield batches[place]

    def batches(
        self, examples: Examples, device: torch.device, draws: torch.Generator
    ) -> Iterator[tuple[Inputs, Tensor]]:
        """Yield each step's inputs and targets; ``draws`` decides the order and the augmentation."""
        size = len(examples)
        if self.whole(size) and not examples.augment:
            yield from repeat(examples.batch(slice(None), device), self.steps(size))
        else:
            for positions in self.positions(size, draws, examples.place(device)):
                yield examples.batch(positions, device, draws)

    def whole(self, size: int) -> bool:
        """Say whether each step takes all of a node's examples."""
        return self.batch_size is None or self.batch_size >= size
