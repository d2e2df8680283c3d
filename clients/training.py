"""Local training: its settings, the steps of one round, and the base class of personal methods."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from inspect import BoundArguments, signature
from itertools import repeat
from typing import ClassVar, Self

import torch
from flwr.app import RecordDict
from torch import Tensor, nn
from torch.nn import Parameter
from torch.optim import Optimizer

from strategies.shared import protocol
from strategies.shared.checks import require, require_count, void_measures
from strategies.shared.flower_names import HasHooks
from strategies.shared.seeding import Purpose, generator

from . import optimizer_step
from .correction import Correction, OptimizerFactory, RoundStart, require_gradients, require_step
from .examples import Examples, Inputs, compute_outputs
from .fast.gradient import EAGER, count_step, get_gradient
from .fast.trace import Step
from .optimizer_step import (
    GradientPipeline,
    OptimizerStep,
    avoid_compiler_import,
    check_rates,
    make_captured_update,
    prepare_optimizer,
    save_state,
)
from .tasks import Task


@dataclass(frozen=True)
class CorrectedTask:
    """Gradient and metrics of a task's loss plus the corrections' terms; the metrics are the task's own.

    Parameters
    ----------
    model, task : what is differentiated
    corrections : whose terms are added; one of them may replace the task's loss
    """

    model: nn.Module
    task: Task
    corrections: Sequence[Correction]

    def __post_init__(self) -> None:
        """Refuse two losses in place of the task's."""
        require_one_loss([type(each).__name__ for each in self.corrections if each.replaces_loss])

    @torch.enable_grad()  # type: ignore[no-untyped-call]
    def loss(self, inputs: Inputs, targets: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return a batch's loss, which can be differentiated, and the metrics' sums over it."""
        outputs = compute_outputs(self.model, inputs)
        loss, sums = self.task(outputs, targets)
        batch = self.model, inputs, outputs, targets
        for correction in self.corrections:
            if correction.replaces_loss:
                loss = _require_number(correction, "replace_loss", correction.replace_loss(*batch))
        for correction in self.corrections:
            if correction.has_loss_term:
                loss = loss + _require_number(correction, "loss_term", correction.loss_term(*batch))
        return loss, sums

    def __call__(
        self, parameters: Sequence[Tensor], inputs: Inputs, targets: Tensor
    ) -> tuple[Sequence[Tensor], dict[str, Tensor]]:
        """Return one gradient per parameter, and the metrics' sums over the batch."""
        count_step(EAGER)
        loss, sums = self.loss(inputs, targets)
        return torch.autograd.grad(loss, parameters, materialize_grads=True), sums


def _require_number(correction: Correction, hook: str, loss: Tensor) -> Tensor:
    """Return a correction's loss, or raise ``ValueError`` where it is no single number."""
    if loss is None or (isinstance(loss, Tensor) and loss.numel() != 1):
        what = "None" if loss is None else f"shape {list(loss.shape)}"
        name = type(correction).__name__
        raise ValueError(f"{name}.{hook} returns {what}: expected one number, e.g. its mean")
    return loss


def require_one_loss(replacing: Sequence[str]) -> None:
    """Raise ``ValueError`` where several corrections, by name, would replace the loss."""
    if len(replacing) > 1:
        named = ", ".join(replacing)
        raise ValueError(f"client.corrections=[{named}] each replace the loss: choose one of them")


def make_gradient(
    model: nn.Module,
    task: Task,
    corrections: Sequence[Correction],
    trace: bool,
    after: GradientPipeline | None,
) -> Step:
    """Return what computes the gradients of one round's steps, and what ``after`` makes of them."""
    adding = [each for each in corrections if each.has_loss_term or each.replaces_loss]
    step: Step = (
        CorrectedTask(model, task, adding) if adding else get_gradient(model, task).for_round(trace, after)
    )
    for correction in corrections:
        step = _wrap_gradient(correction, step)
    return step


def _wrap_gradient(correction: Correction, step: Step) -> Step:
    """Return a step in a correction's hands; what that returns is checked."""
    name, wrapped = f"{type(correction).__name__}.wrap_gradient", correction.wrap_gradient(step)
    if wrapped is step:
        return step
    if not callable(wrapped):
        raise ValueError(f"{name} returns no function: expected one that does what its argument does")

    def checked(parameters: Sequence[Tensor], *batch: Tensor) -> tuple[Sequence[Tensor], dict[str, Tensor]]:
        returned = wrapped(parameters, *batch)
        require_step(f"{name}'s function", returned)
        require_gradients(f"{name}'s function", returned[0], parameters)
        return returned

    return checked


CorrectionFactory = Callable[[RoundStart], Correction]  # mostly a class with its settings


def check_corrections(corrections: Mapping[str, CorrectionFactory]) -> None:
    """Raise ``ValueError`` for a setting that is out of range, missing, or unknown to the correction."""
    replacing = []
    for name, kind, bound in _iterate_classes(corrections):
        kind.check_settings(*bound.args[1:], **bound.kwargs)
        if kind.replace_loss is not Correction.replace_loss:
            replacing.append(name)
    require_one_loss(replacing)


def check_model(corrections: Mapping[str, CorrectionFactory], model: nn.Module, task: Task) -> None:
    """Raise ``ValueError`` where a correction cannot work with the model or the task."""
    for _, kind, _ in _iterate_classes(corrections):
        kind.check_model(model, task)


def find_ineffective(
    corrections: Mapping[str, CorrectionFactory], work: Collection[tuple[int, int]]
) -> Iterator[str]:
    """Yield a line for each correction that does nothing at any node.

    ``work`` are the nodes' numbers of steps: in a round, and in an epoch.
    """
    for name, kind, bound in _iterate_classes(corrections):
        reasons = [kind.describe_no_effect(*steps, *bound.args[1:], **bound.kwargs) for steps in work]
        if reasons and all(reasons):
            yield f"client.corrections.{name} {reasons[0]}"


def _iterate_classes(
    corrections: Mapping[str, CorrectionFactory],
) -> Iterator[tuple[str, type[Correction], BoundArguments]]:
    """Yield each correction that is a class, with its settings; the first argument is the start."""
    for name, begin in corrections.items():
        whole = begin if isinstance(begin, partial) else partial(begin)
        kind = whole.func
        if not (isinstance(kind, type) and issubclass(kind, Correction)):
            continue
        takes = signature(kind)
        try:
            bound = takes.bind(*whole.args, None, **whole.keywords)  # None: the start is still to come
        except TypeError as error:
            settings = [str(p.replace(annotation=p.empty)) for p in takes.parameters.values()][1:]
            nothing = "no settings" if takes.parameters else "def __init__(self, start: RoundStart)"
            raise ValueError(
                f"client.corrections.{name}={kind.__name__} cannot be built ({error}): "
                f"expected {', '.join(settings) or nothing}"
            ) from error
        bound.apply_defaults()
        yield name, kind, bound


def is_stateful(begin: object) -> bool:
    """Say whether what begins a correction, mostly its class, keeps anything from round to round."""
    return bool(getattr(correction_class(begin), "remembers", False))


def order_corrections(corrections: Mapping[str, CorrectionFactory]) -> list[CorrectionFactory]:
    """Return what begins the corrections, last those that change the model: others refer to the one sent."""
    return sorted(corrections.values(), key=changes_initial_model)


def changes_initial_model(begin: object) -> bool:
    """Say whether the node then begins from another model than the one it was sent."""
    return bool(getattr(correction_class(begin), "changes_initial_model", False))


def correction_class(begin: object) -> object:
    """Return what is called with the round's start, mostly the correction's class."""
    return getattr(begin, "func", begin)


# A straggler's epochs (or steps) are uniform from ``least_work`` to all of them, as in FedProx's
# experiments (Li et al., MLSys 2020, section 5.2). The stragglers of probability p are the nodes that
# would drop out with it (``participation.dropout``): FedAvg that drops them and FedProx that keeps them
# are compared on the same ones. With dropout q < p, a share p - q of the nodes takes part and does less.


def check_stragglers(probability: float, least_work: int, unit: str, full: int) -> None:
    """Refuse a probability outside [0, 1], and stragglers that could do no less than the others."""
    require(0 <= probability <= 1, "client.stragglers", probability, "in [0, 1]")
    require_count("client.least_work", least_work)
    if probability and least_work >= full:
        raise ValueError(
            f"client.stragglers={probability} with client.{unit}={full} and "
            f"client.least_work={least_work}: no node could do less work; set {unit} above least_work"
        )


def draw_work(
    probability: float, least_work: int, full: int, seed: int, server_round: int, partition_id: int
) -> int:
    """Return how many of ``full`` epochs, or steps, a node takes in a round."""
    draws = generator(seed, Purpose.AVAILABILITY, server_round=server_round, partition_id=partition_id)
    straggles = draws.random() < probability
    return int(draws.integers(least_work, full, endpoint=True)) if straggles else full


class Schedule(ABC):
    """A factor on the client learning rate."""

    @abstractmethod
    def __call__(self, server_round: int) -> float:
        """Return the factor in round 1, 2, ..."""


@dataclass(frozen=True)
class Exponential(Schedule):
    """gamma ** (round - 1 + ahead).

    Parameters
    ----------
    gamma : factor per round in (0, 1]; 1 keeps the learning rate constant
    ahead : 1 decays before the first round already, as FedExP's code does
    """

    gamma: float = 1.0
    ahead: int = 0

    def __post_init__(self) -> None:
        """Refuse a factor outside (0, 1], and a negative or fractional ``ahead``."""
        require(0 < self.gamma <= 1, "client.schedule.gamma", self.gamma, "in (0, 1]")
        whole = isinstance(self.ahead, int) and self.ahead >= 0
        require(whole, "client.schedule.ahead", self.ahead, "a whole number, 0 or above")

    def __call__(self, server_round: int) -> float:
        """Return the factor."""
        return float(self.gamma ** (server_round - 1 + self.ahead))


@dataclass(frozen=True)
class StepDecay(Schedule):
    """gamma ** floor((round - 1) / every): torch's StepLR, counted in rounds.

    Parameters
    ----------
    every : rounds between decays
    gamma : factor of each decay, in (0, 1]
    """

    every: int
    gamma: float

    def __post_init__(self) -> None:
        """Refuse values out of range."""
        require_count("client.schedule.every", self.every)
        require(0 < self.gamma <= 1, "client.schedule.gamma", self.gamma, "in (0, 1]")

    def __call__(self, server_round: int) -> float:
        """Return the factor."""
        return float(self.gamma ** ((server_round - 1) // self.every))


class Personal(HasHooks):
    """A personal method, by which nodes have models of their own; this base class changes nothing.

    It changes nothing on the server, and two things on the node: how the local update is taken
    (:meth:`train`), and which model the node evaluates on its own test examples
    (:meth:`personalise`). What the node keeps lies in Flower's ``context.state``, and a class that keeps
    anything sets ``remembers = True``. So it works under any strategy; ``client.personal`` chooses it.
    """

    remembers: ClassVar[bool] = False  # whether it keeps anything in the node's state from round to round
    has_fixed_start: ClassVar[bool] = False  # whether the model before the first step is to be the server's

    def check(self, model: nn.Module, private: Sequence[str]) -> None:
        """Raise ``ValueError`` for a model, or private layers, that the method cannot work with."""

    def for_message(self, content: RecordDict) -> "Personal":
        """Return the method as it evaluates for a message: a copy, where its round or records matter."""
        return self

    def train(self, update: "LocalUpdate") -> dict[str, float]:
        """Train ``update.model`` to what the server is sent; return the metrics.

        ``dataclasses.replace(update, corrections=[*update.corrections, mine])`` takes the same steps with a
        correction of the method's own; ``update.training.rate(update.server_round)`` is their learning rate, and
        ``update.memory`` what the node keeps, an ``ArrayRecord`` under a key of the method's own.
        """
        return update.run()

    def personalise(
        self, model: nn.Module, examples: Examples, task: Task, batch_size: int | None, state: RecordDict
    ) -> None:
        """Turn the server's model, in place, into the one that the node evaluates.

        ``examples`` are the node's training examples, ``state`` is what it keeps.
        """


@dataclass(frozen=True)
class LocalUpdate(HasHooks):
    """A node's local training in one round, before a personal method changes it.

    Parameters
    ----------
    training : how it trains
    model : at the values that it starts from; trained in place
    examples, task : the node's training examples, and what is learnt from them
    server_round : 1, 2, ...
    seed : decides the order of the examples, their augmentation, and whatever the model draws (dropout)
    corrections : what is added to the loss or the gradients
    memory : the node's state, with that of a kept optimiser; None for none
    """

    training: "LocalTraining"
    model: nn.Module
    examples: Examples
    task: Task
    server_round: int
    seed: int
    corrections: Sequence[Correction] = ()
    memory: RecordDict | None = None

    @torch.no_grad()
    def run(self) -> dict[str, float]:
        """Take the steps; return the metrics, averaged over the examples seen."""
        training, parameters = self.training, [p for p in self.model.parameters() if p.requires_grad]
        optimizer = training.optimizer(parameters)
        memory = self.memory if training.keep_optimizer else None
        rate = prepare_optimizer(optimizer, training.schedule(self.server_round), memory)
        move = self._optimizer_step(parameters, optimizer, fresh=memory is None)
        end_epoch = getattr(optimizer, "epoch_step", None)
        per_epoch = training.steps_per_epoch(len(self.examples))
        batches = self.batches(torch.Generator().manual_seed(self.seed))
        gradient_of_batch = make_gradient(
            self.model, self.task, self.corrections, training.trace, move.after
        )
        totals: dict[str, Tensor] = {}
        num_examples = steps = 0
        for inputs, targets in batches:
            gradients, sums = gradient_of_batch(parameters, inputs, targets)
            move(gradients)
            for name, value in sums.items():
                totals[name] = totals[name] + value if name in totals else value
            num_examples += targets.shape[0]
            steps += 1
            if end_epoch is not None and steps % per_epoch == 0:
                end_epoch()
            if any(correction.should_stop(parameters) for correction in self.corrections):
                break
        if memory is not None:
            save_state(optimizer, memory)
        means = void_measures({name: float(total) / num_examples for name, total in totals.items()})
        return {**means, protocol.LOCAL_STEPS: steps, protocol.LEARNING_RATE: rate}

    def batches(self, draws: torch.Generator) -> Iterator[tuple[Inputs, Tensor]]:
        """Put the model into training, seed all that it draws; return each step's inputs and targets.

        ``draws`` decides the examples' order and augmentation.
        """
        device = next(p.device for p in self.model.parameters() if p.requires_grad)
        seed_model(self.seed, device)
        self.model.train()
        return self.training.batches(self.examples, device, draws)

    def _optimizer_step(
        self, parameters: list[Parameter], optimizer: Optimizer, fresh: bool
    ) -> OptimizerStep:
        """Return what a step does with its gradients; ``fresh``: the optimiser begins with the round."""
        edited = self.corrections, self.training.max_grad_norm
        captures = self.training.trace and optimizer_step.can_capture(parameters[0].device)
        if captures and not any(correction.requires_sequential for correction in self.corrections):
            return make_captured_update(parameters, optimizer, *edited, fresh=fresh)
        return OptimizerStep(parameters, optimizer, None, *edited)


def seed_model(seed: int, device: torch.device) -> None:
    """Seed torch's generators; ``torch.manual_seed`` would initialise a GPU even for training on the CPU."""
    torch.default_generator.manual_seed(seed)
    if device.type != "cpu":
        torch.get_device_module(device).manual_seed(seed)


CPU = torch.device("cpu")


@dataclass(frozen=True, kw_only=True)
class LocalTraining(HasHooks):
    """How a node trains in one round.

    Parameters
    ----------
    optimizer : builds a ``torch.optim`` optimiser from the parameters
    local_epochs, local_steps : how long to train; exactly one of them is set
    batch_size : examples per step; None takes all of the node's examples at once
    schedule : factor on the optimiser's learning rate, by round
    stragglers : the probability that a node does less in a round (:mod:`clients.training`)
    least_work : how many epochs (or steps) it takes at least
    max_grad_norm : clip the gradient's global norm to this before each step; None does not
    private : patterns of what stays at the node from round to round (:mod:`clients.private`)
    personal : the method for models of the nodes' own (:class:`Personal`); None for the server's
    keep_optimizer : momentum and moments stay at the node; False starts each round with fresh ones
    corrections : by any name, what begins a :class:`~clients.Correction` of each round, besides those that
        the message asks for; they act in this order
    trace : record repeated steps; False keeps to autograd, for a model that reads what changes elsewhere
    """

    can_correct: ClassVar[bool] = True  # whether corrections can act on its steps
    update_type: ClassVar[type[LocalUpdate]] = LocalUpdate  # how the steps of a round are taken
    optimizer: OptimizerFactory
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
    corrections: Mapping[str, CorrectionFactory] = field(default_factory=dict)
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
        check_stragglers(self.stragglers, self.least_work, *self.work)
        norm = self.max_grad_norm
        require(norm is None or norm > 0, "client.max_grad_norm", norm, "above 0, or null")
        avoid_compiler_import()
        check_rates(self.optimizer)
        check_corrections(self.corrections)
        if isinstance(self.optimizer, partial):  # Hydra's kind examines its target at every call
            plain = partial(self.optimizer.func, *self.optimizer.args, **self.optimizer.keywords)
            object.__setattr__(self, "optimizer", plain)

    @property
    def remembers(self) -> bool:
        """Whether a node keeps anything from round to round."""
        of_rounds = any(map(is_stateful, (self.personal, *self.corrections.values())))
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

    def rate(self, server_round: int) -> float:
        """Return the learning rate of a round."""
        return self.lr * self.schedule(server_round)

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
        """Train ``model`` in place, as :class:`LocalUpdate` says; return the metrics."""
        update = self.update_type(self, model, examples, task, server_round, seed, corrections, memory)
        return update.run() if self.personal is None else self.personal.train(update)

    def steps_per_epoch(self, size: int) -> int:
        """Return how many steps take each of ``size`` examples once."""
        return -(-size // (self.batch_size or size or 1))

    def with_duration(self, *, epochs: int | None = None, steps: int | None = None) -> Self:
        """Return the same training for another number of epochs, or steps, without stragglers."""
        return replace(self, local_epochs=epochs, local_steps=steps, stragglers=0.0)

    def steps(self, size: int) -> int:
        """Return how many steps a node with ``size`` examples takes in a round."""
        steps = self.local_steps or self.steps_per_epoch(size) * (self.local_epochs or 0)
        return steps if size else 0

    def idle_corrections(self, sizes: Iterable[int]) -> list[str]:
        """Return a line for each correction that does nothing at nodes of these sizes."""
        work = {(self.steps(size), self.steps_per_epoch(size)) for size in sizes if size}
        return list(find_ineffective(self.corrections, work))

    def positions(self, size: int, draws: torch.Generator, device: torch.device = CPU) -> Iterator[Tensor]:
        """Yield which of its examples each step takes: reshuffled every epoch, the last batch shorter.

        An epoch's order goes to ``device`` as a whole.
        """
        for step in range(self.steps(size)):
            place = step % self.steps_per_epoch(size)
            if place == 0:
                shuffled = torch.randperm(size, generator=draws).to(device)
                batches = torch.split(shuffled, self.batch_size or size)
            yield batches[place]

    def batches(
        self, examples: Examples, device: torch.device, draws: torch.Generator
    ) -> Iterator[tuple[Inputs, Tensor]]:
        """Yield each step's inputs and targets; ``draws`` decides the order and the augmentation."""
        size = len(examples)
        if self.is_full_batch(size) and not examples.augment:
            yield from repeat(examples.batch(slice(None), device), self.steps(size))
        else:
            for positions in self.positions(size, draws, examples.place(device)):
                yield examples.batch(positions, device, draws)

    def is_full_batch(self, size: int) -> bool:
        """Say whether each step takes all of a node's examples."""
        return self.batch_size is None or self.batch_size >= size
