"""Correction: a method's change to a node's loss or gradient.

FedProx and its kin differ from FedAvg on the node: by a term in the loss or the gradient, by where the
gradient is taken, or by what they send to the server. A correction is all of these. It is made anew for each
round, and chosen in one of two ways:

* by the message: the strategy sends a key, and the class names it as ``config_key``
  (:mod:`clients.round` lists the classes);
* by ``client.corrections``: a YAML file names the class and its settings (``_partial_: true``).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from flwr.app import ArrayRecord, ConfigRecord, RecordDict
from torch import Tensor, nn
from torch.nn import Parameter
from torch.optim import Optimizer

from strategies.shared import protocol
from strategies.shared.arrays import values_of
from strategies.shared.flower_names import HasHooks, warn_of_old_names

from .examples import Examples, Inputs
from .fast.trace import Step
from .tasks import Task

OptimizerFactory = Callable[[list[Parameter]], Optimizer]
Tensors = list[Tensor] | tuple[Tensor, ...]  # what torch._foreach_* takes and returns


@dataclass(frozen=True)
class GradientTransform:
    """A correction of gradients as operations on lists of tensors, one for each parameter.

    It works coordinate by coordinate and does not depend on the step's number, so that it serves a stack of
    nodes as well as one, and can be part of a captured step.

    Parameters
    ----------
    apply : (gradients, parameters, *fixed, *numbers) -> new gradients; it changes none of them
    fixed : lists of tensors that stay as they are for the round
    numbers : what else it depends on
    """

    apply: Callable[..., Tensors]
    fixed: Sequence[Tensors]
    numbers: tuple[float, ...] = ()

    def __call__(self, gradients: Tensors, parameters: Tensors) -> Tensors:
        """Return the edited gradients."""
        return self.apply(gradients, parameters, *self.fixed, *self.numbers)

    def of(self, places: Sequence[int]) -> "GradientTransform":
        """Return the edit of these parameters alone."""
        return replace(self, fixed=[[tensors[k] for k in places] for tensors in self.fixed])

    @property
    def name(self) -> str:
        """The name of the function."""
        return str(getattr(self.apply, "__qualname__", self.apply))

    @property
    def kind(self) -> tuple[object, ...]:
        """A key: equal for two edits that do the same, each with its own tensors."""
        return self.apply, self.numbers


@dataclass(frozen=True)
class RoundStart:
    """The state of a node at the start of its round.

    Parameters
    ----------
    model : at the values that the server sent, w_t; what is private at the node's own
    examples, task : the node's training examples, and what is learnt from them
    optimizer : builds the client optimiser from parameters
    steps : how many steps the node will take, unless a correction ends its round earlier
    batch_size : examples per step; None for all of them
    content : the server's message: its configuration and further records
    state : what the node keeps from round to round; may be changed
    partition_id : the node's
    own_model : returns the initial model that the node draws for itself; None where it draws none
    seed : decides whatever the node draws in this round
    """

    model: nn.Module
    examples: Examples
    task: Task
    optimizer: OptimizerFactory
    steps: int
    batch_size: int | None
    content: RecordDict
    state: RecordDict
    partition_id: int
    own_model: Callable[[], nn.Module] | None = None
    seed: int = 0

    @property
    def named(self) -> dict[str, Parameter]:
        """The trained parameters by name."""
        return {name: p for name, p in self.model.named_parameters() if p.requires_grad}

    @property
    def config(self) -> ConfigRecord:
        """The message's configuration."""
        record = self.content[protocol.CONFIG]
        assert isinstance(record, ConfigRecord)
        return record

    def tensors(self, name: str) -> list[Tensor]:
        """Return an ArrayRecord of the message, by its name, as a tensor for each trained parameter."""
        record = self.content.array_records[name]
        return [values_of(record[key]).to(p) for key, p in self.named.items()]


Edit = GradientTransform  # its old name, for one release
RENAMED = {  # what a correction defines: the old names, for one release, and the new ones
    "term": "loss_term",
    "has_term": "has_loss_term",
    "around": "wrap_gradient",
    "__call__": "transform_gradients",
    "done": "should_stop",
    "finish": "on_round_end",
    "alone": "requires_sequential",
    "starts_elsewhere": "changes_initial_model",
    "reads_way": "uses_displacement",
    "edit": "gradient_transform",
    "asked_by": "config_key",
}


class Correction(HasHooks):
    """The change of one round to loss or gradients; its constructor takes a :class:`RoundStart`."""

    renamed = RENAMED
    config_key: ClassVar[str] = ""  # the message's configuration asks for it by this key, if not with 0
    reads: ClassVar[tuple[str, ...]] = ()  # further keys of the message's configuration, which may be 0
    remembers: ClassVar[bool] = False  # whether it keeps anything in the node's state from round to round
    shares_all: ClassVar[bool] = False  # whether no parameter may stay at its node: refuses ``private=``
    changes_initial_model: ClassVar[bool] = False  # whether the node begins from another model than w_t
    gradient_transform: GradientTransform | None = None  # what it does to gradients, if one can say it

    @property
    def edit(self) -> GradientTransform | None:
        """The old name of ``gradient_transform``, which an instance may set."""
        return self.gradient_transform

    @edit.setter
    def edit(self, value: GradientTransform | None) -> None:
        warn_of_old_names(type(self), {"edit": RENAMED["edit"]})
        self.gradient_transform = value

    @classmethod
    def begin(cls, start: RoundStart) -> "Correction":
        """Return the correction of a round whose message asks for it."""
        return cls(start)  # type: ignore[call-arg]

    @classmethod
    def check(cls, optimizer: OptimizerFactory, config: Mapping[str, object]) -> None:
        """Raise ``ValueError`` for a client optimiser that the correction cannot work with."""

    @classmethod
    def uses_displacement(cls, config: Mapping[str, object]) -> bool:
        """Say whether it treats a node's displacement from w_t as a weighted sum of this round's gradients.

        Then momentum of earlier rounds, or another initial model, would count as gradients of this one: a kept
        optimiser, and a correction that changes the initial model, are refused beside it. The same holds where
        the strategy does it with the updates, as FedCM's server does.
        """
        return False

    @staticmethod
    def check_settings(*args: Any, **settings: Any) -> None:
        """Raise ``ValueError`` for settings out of range; asked before the first round, too."""

    @staticmethod
    def check_model(model: nn.Module, task: Task) -> None:
        """Raise ``ValueError`` for a model or a task it cannot work with; asked before the first round, too."""

    @staticmethod
    def describe_no_effect(steps: int, per_epoch: int, *args: Any, **settings: Any) -> str:
        """Say why these settings do nothing at a node with this number of steps; empty where they may do something."""
        return ""

    def loss_term(self, model: nn.Module, inputs: Inputs, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return what is added to a batch's loss, a number that can be differentiated.

        ``model`` is the one in training, ``outputs`` what it gives for ``inputs``. Steps with a term are
        left to autograd: they are neither recorded nor batched.
        """
        return outputs.new_zeros(())

    @property
    def has_loss_term(self) -> bool:
        """Whether it adds to the loss."""
        return type(self).loss_term is not Correction.loss_term

    def replace_loss(self, model: nn.Module, inputs: Inputs, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return a batch's loss in place of the task's, a number that can be differentiated.

        The arguments are those of ``loss_term``; the metrics stay the task's. One correction of a round can
        replace the loss; the others' terms are added to what it returns.
        """
        raise NotImplementedError

    @property
    def replaces_loss(self) -> bool:
        """Whether it replaces the task's loss."""
        return type(self).replace_loss is not Correction.replace_loss

    def wrap_gradient(self, step: Step) -> Step:
        """Return what computes a batch's gradient and metrics in place of ``step``.

        ``step(parameters, inputs, targets)`` returns a gradient for each parameter, and the sums of the metrics over
        the batch; what is returned here does the same. Neither is recorded by autograd, so that parameters can be
        written to; put them back. Of several corrections each wraps those before it, and what a personal method
        adds wraps them all: its ``step`` takes FedSAM's gradients, say.
        """
        return step

    @staticmethod
    def choose_model(start: RoundStart, models: Iterable[nn.Module]) -> int:
        """Return which of a message's models the node trains, or is evaluated with: 0, 1, ...

        The last of the corrections that have this hook chooses.

        Parameters
        ----------
        start : of the round, before a model is chosen
        models : yields the node's one model at the values of each of them, with its private layers
        """
        raise NotImplementedError

    @property
    def requires_sequential(self) -> bool:
        """Whether nodes with this correction train one by one."""
        changes_loss = self.has_loss_term or self.replaces_loss
        return changes_loss or type(self).wrap_gradient is not Correction.wrap_gradient

    def transform_gradients(self, parameters: Sequence[Parameter]) -> None:
        """Edit or observe ``p.grad`` of every trained parameter, once in each step; copy what you keep.

        By default it applies ``gradient_transform``, a :class:`GradientTransform` that the constructor may set. A
        class that overrides this method replaces that; its nodes are corrected one at a time.
        """
        if self.gradient_transform is None:
            return
        places = [k for k, p in enumerate(parameters) if p.grad is not None]
        gradients = [p.grad for p in parameters if p.grad is not None]
        edit = (
            self.gradient_transform
            if len(places) == len(parameters)
            else self.gradient_transform.of(places)
        )
        edited = edit(gradients, [parameters[k].detach() for k in places])
        require_gradients(f"{type(self).__name__}.gradient_transform", edited, gradients)
        for k, gradient in zip(places, edited, strict=True):
            parameters[k].grad = gradient

    def should_stop(self, parameters: Sequence[Parameter]) -> bool:
        """Say after each step whether the node's round is to end here; nodes that ask are not batched."""
        return False

    @property
    def can_end_early(self) -> bool:
        """Whether it can end a round before its last step."""
        return type(self).should_stop is not Correction.should_stop

    def on_round_end(
        self, parameters: Sequence[Parameter], metrics: dict[str, float]
    ) -> dict[str, ArrayRecord]:
        """Return what else the reply carries; may add to ``metrics``. Called after the last step."""
        return {}


def require_gradients(name: str, gradients: object, parameters: Sequence[Tensor]) -> None:
    """Raise ``ValueError`` where ``name``, a hook, returns no list of a gradient for each parameter."""
    count = len(parameters)
    expected = f"expected a list of {count} tensors, one for each trained parameter and shaped as it"
    if not isinstance(gradients, list | tuple):
        raise ValueError(f"{name} returns {_describe(gradients)} for gradients: {expected}")
    if len(gradients) != count:
        raise ValueError(f"{name} returns {len(gradients)} gradients: {expected}")
    for k, (gradient, p) in enumerate(zip(gradients, parameters, strict=True)):
        if not isinstance(gradient, Tensor) or gradient.shape != p.shape:
            raise ValueError(f"{name} returns {_describe(gradient)} as gradient {k}: {expected}")


def require_step(name: str, returned: object) -> None:
    """Raise ``ValueError`` where ``name``, a step, returns no pair of gradients and sums of metrics."""
    if not (isinstance(returned, list | tuple) and len(returned) == 2 and isinstance(returned[1], Mapping)):
        raise ValueError(
            f"{name} returns {_describe(returned)}: expected a pair, the gradients and the sums of the metrics"
        )


def require_records(name: str, records: object) -> None:
    """Raise ``ValueError`` where ``name``, a hook, returns no ArrayRecords by name."""
    if not (isinstance(records, Mapping) and all(isinstance(r, ArrayRecord) for r in records.values())):
        raise ValueError(
            f"{name} returns {_describe(records)}: expected ArrayRecords by name, {{}} for none"
        )


def _describe(value: object) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of shape {list(value.shape)}"
    return "None" if value is None else f"a {type(value).__name__}"


def get_transforms(corrections: Sequence[Correction]) -> list[GradientTransform] | None:
    """Return the corrections' edits, in order; None where one overrides ``transform_gradients``."""
    if any(
        type(correction).transform_gradients is not Correction.transform_gradients
        for correction in corrections
    ):
        return None
    transforms = (correction.gradient_transform for correction in corrections)
    return [transform for transform in transforms if transform is not None]
