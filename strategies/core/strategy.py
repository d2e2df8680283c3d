"""The interface of every strategy in this package, beyond Flower's hooks.

It says which models are to be evaluated, what a run resumes from, and what it needs of whoever runs it. A
new strategy that keeps these promises needs no change anywhere else. Flower's ``start`` hands
``evaluate_fn`` the arrays that were aggregated last; a mean of iterates, or the models of several groups,
are something else.
"""

import logging
import sys
from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from inspect import Signature, signature
from operator import add
from types import FrameType
from typing import Any, ClassVar

from flwr.app import ArrayRecord, ConfigRecord, ConfigScalar, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp import strategy as flower
from flwr.serverapp.strategy import Result, Strategy
from torch import Tensor

from strategies.parts.updates import MissingReplies, NoStep
from strategies.shared import flower_names, protocol
from strategies.shared.checks import require, require_count
from strategies.shared.flower_private import UNREACHABLE_CODES

logger = logging.getLogger("flwr.strategies")

HasEnoughReplies = Callable[[Sequence[Message]], bool]

SERVER_DATA_ERROR = (
    "{name} needs examples on the server: set validation_size, or call set_server_data before"
)


@dataclass(frozen=True)
class Question:
    """What candidates are asked before a round.

    Parameters
    ----------
    metrics : names of what a node measures at w[t] on its training examples: ``start-loss``, what it minimises;
        ``squared-loss``, the mean of its examples' squared losses; or a metric of its task, as ``accuracy``
    num_examples : on how many of them, drawn by seed, round and partition; None for all
    """

    metrics: tuple[str, ...]
    num_examples: int | None = None

    def __post_init__(self) -> None:
        """Refuse a question that asks for nothing, or on no examples."""
        named = isinstance(self.metrics, tuple) and bool(self.metrics)
        require(named, "question.metrics", self.metrics, "a tuple of names, e.g. ('start-loss',)")
        require_count("question.num_examples", self.num_examples, optional=True)

    def config(self) -> dict[str, ConfigScalar | list[str]]:
        """Return what the message's configuration says of it."""
        config: dict[str, ConfigScalar | list[str]] = {protocol.MEASURES: list(self.metrics)}
        if self.num_examples is not None:
            config[protocol.MEASURED_EXAMPLES] = self.num_examples
        return config


class ServerData:
    """The model on the server's examples; in a run those that ``validation_size`` sets aside.

    Whoever runs a strategy that ``needs_server_data`` gives it one (``set_server_data``). In a Flower app of
    your own, subclass it and define what the strategy calls: each method that exists names who does.
    """

    @property
    def num_inputs(self) -> int:
        """Return how many inputs there are: the rows 0 ... num_inputs - 1 of :meth:`compute_outputs`."""
        raise NotImplementedError

    def compute_outputs(self, arrays: Mapping[str, Tensor], rows: Tensor) -> Tensor:
        """Return the model's outputs for some inputs: logits [n, ..., classes], for FedDF and CoDistillation.

        The model is in evaluation mode, and no label is looked at.

        Parameters
        ----------
        arrays : its parameters and buffers by name; the outputs can be differentiated by those that require it
        rows : [n], which inputs
        """
        raise NotImplementedError

    def compute_correctness(self, models: Sequence[ArrayRecord]) -> Tensor:
        """Return whether each model is right about each example, [models, examples] of bools, for SelectiveFedAvg."""
        raise NotImplementedError

    def compute_gradient(self, model: ArrayRecord) -> ArrayRecord:
        """Return the gradient of the loss on all examples at a model, by the model's names, for FedMeta."""
        raise NotImplementedError


class KeywordAdviceMeta(ABCMeta):
    """Metaclass of strategies: for an unknown keyword of Flower's, or of a part, it names ours."""

    def __call__(cls, *args: Any, **given: Any) -> Any:
        """Make a strategy; raise ``TypeError`` with advice, also for what ``**kwargs`` hand on."""
        try:
            return super().__call__(*args, **given)
        except TypeError as error:
            if instead := flower_names.explain_unexpected_keyword(error, cls, given.get("inner")):
                raise TypeError(instead) from None
            raise

    @property
    def __signature__(cls) -> Signature:
        """What the class takes, which ``__call__`` would hide."""
        try:
            taken = signature(cls.__init__, eval_str=True).parameters  # type: ignore[misc]
        except NameError:  # a name that the class' module imports under TYPE_CHECKING
            taken = signature(cls.__init__).parameters  # type: ignore[misc]
        return Signature([parameter for name, parameter in taken.items() if name != "self"])


class BaseStrategy(flower_names.HasHooks, Strategy, metaclass=KeywordAdviceMeta):
    """A Flower strategy that can be evaluated, checked, saved and resumed."""

    is_resumable: ClassVar[bool] = (
        True  # whether ``state_dict`` holds all that the rounds to come depend on
    )
    server_data: ServerData | None = None  # a field of each strategy that needs it
    is_asynchronous: ClassVar[bool] = (
        False  # whether it orders replies itself, as asynchronous strategies do
    )

    def __setattr__(self, name: str, value: object) -> None:
        """Refuse a name of Flower's, or of a part, that nothing would read.

        A strategy of a user's own may read it: there a name that is Flower's alone is logged.
        """
        kind = type(self)
        fields = getattr(kind, "__dataclass_fields__", ())
        if not (name.startswith("_") or name in fields or hasattr(kind, name)):
            instead = flower_names.find_advice(kind, name, getattr(self, "inner", None))
            if instead and kind.__module__.startswith("strategies."):
                raise AttributeError(instead)
            if instead and name in flower_names.FLOWER_ONLY_NAMES:
                logger.warning("%s", instead)
        super().__setattr__(name, value)

    @property
    def name(self) -> str:
        """What the strategy is called."""
        return type(self).__name__

    @abstractmethod
    def models_to_evaluate(self, arrays: ArrayRecord) -> dict[str, ArrayRecord]:
        """Return the models to evaluate, by name; ``arrays`` are the last that were aggregated."""

    @abstractmethod
    def check(self, arrays: ArrayRecord) -> object:
        """Raise ``ValueError`` for a model that the strategy cannot work with."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Return all that the next round depends on, the current arrays aside.

        A subclass adds its own to ``super().state_dict()``: tensors, Flower's records, numbers, texts, None, and
        lists, tuples and dicts of these; no NumPy arrays. Copy a tensor that later rounds write over.
        """

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where the strategy that gave ``state`` stood, bit for bit.

        A subclass reads its own keys, and gives ``state`` to ``super()``, which leaves those aside.
        """

    @abstractmethod
    def set_num_rounds(self, rounds: int) -> None:
        """Let a run of this many rounds fail when none of them takes a step."""

    def describe_beyond_mean(self) -> str:
        """Name what makes the step more than a mean of the updates; empty for nothing."""
        return ""

    def train_config(self) -> dict[str, ConfigScalar]:
        """Return what the messages' configuration asks of each node besides its training."""
        return {}

    @property
    def question(self) -> Question | None:
        """What candidates are asked before each round; None for nothing."""
        return None

    @property
    def has_enough(self) -> HasEnoughReplies | None:
        """Says whether a round ends with its replies so far, while others stay awaited; None waits for all."""
        return None

    def question_messages(self) -> tuple[list[Message], list[Message]]:
        """Return what nodes were asked before this round, and what they answered, to count bytes."""
        return [], []

    def model_weight(self, name: str) -> int:
        """Return how many nodes a model is for, relative to the others: what it counts in their mean."""
        return 1

    def owner_of(self, name: str) -> int | None:
        """Return the partition of the only node that a model is for; None where several share it."""
        return None

    def max_num_models(self, num_nodes: int) -> int:
        """Return the largest number of models to evaluate, with ``num_nodes`` nodes."""
        return 1

    @property
    def has_stateful_nodes(self) -> bool:
        """Whether the nodes keep a state of their own from round to round."""
        return False

    @property
    def stop_reason(self) -> str:
        """Why no further round may be taken; empty where it may."""
        return ""

    @property
    def needs_server_data(self) -> bool:
        """Whether :meth:`set_server_data` has to be called before the first round.

        Where a subclass returns True, a run calls it; the step gets the data from :meth:`require_server_data`.
        """
        return False

    def per_site_metrics(self) -> dict[str, dict[str, float]]:
        """Return the metrics of the last evaluation on each node, by its site's name or as ``node 3``."""
        return {}

    def participation_counts(self) -> dict[str, dict[str, int]]:
        """Return what each node has contributed so far (:class:`~.client_registry.ContributionLog`)."""
        return {}

    def known_partitions(self) -> Mapping[int, int]:
        """Return which partition each node holds, by node id: of those that have said so."""
        return {}

    def stop_awaiting(self, messages: Collection[Message]) -> None:
        """Take messages of the round that are no longer waited for: their nodes have not failed."""

    def measure_norms(self) -> None:
        """Measure the norm of each update from now on (:meth:`update_norms`)."""

    def freeze(self, names: Iterable[str]) -> None:
        """Take the names of parameters that no node trains: they need not travel in each round."""

    def update_norms(self) -> dict[str, float]:
        """Return the norms of the last round's updates, by site's name or as ``node 3``."""
        return {}

    def set_server_data(self, server_data: ServerData) -> None:
        """Take the model on the server's examples."""
        self.server_data = server_data

    def require_server_data(self) -> ServerData:
        """Return the server's data; raise ``ValueError`` where nobody has set it."""
        if self.server_data is None:
            raise ValueError(SERVER_DATA_ERROR.format(name=self.name))
        return self.server_data

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Run all rounds as Flower does; average ``evaluate_fn`` of several models by their nodes.

        Started again, a strategy goes on from what it remembers (momentum, control variates, groups and
        their models): a run of its own takes a new one.

        Raises
        ------
        ValueError : for too few rounds, or where the strategy lacks what it needs of its caller
        TooManyFailedRounds : after ``max_failed_rounds`` rounds in a row without a step, or when none took one
        """
        self.set_num_rounds(num_rounds)
        if self.needs_server_data:
            raise ValueError(SERVER_DATA_ERROR.format(name=self.name))

        def evaluate_all(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
            assert evaluate_fn is not None
            by_model = {
                name: evaluate_fn(server_round, model)
                for name, model in self.models_to_evaluate(arrays).items()
            }
            measured = {name: metrics for name, metrics in by_model.items() if metrics is not None}
            if len(measured) > 1:
                return merge_metric_records(
                    list(measured.values()), [self.model_weight(name) for name in measured]
                )
            return next(iter(measured.values()), None)

        return super().start(
            grid,
            initial_arrays,
            num_rounds,
            timeout,
            train_config,
            evaluate_config,
            evaluate_all if evaluate_fn else None,
        )


def merge_metric_records(records: Sequence[MetricRecord], weights: Sequence[float]) -> MetricRecord:
    """Sum metrics that count nodes; average all others, with ``weights``, over the records that have them."""
    result = MetricRecord()
    for key in dict.fromkeys(key for record in records for key in record):
        pairs = [(r[key], w) for r, w in zip(records, weights, strict=True) if key in r]
        having = [(float(value), w) for value, w in pairs if not isinstance(value, list)]
        lists = [value for value, _ in pairs if isinstance(value, list)]
        if lists and (having or len(set(map(len, lists))) > 1):
            logger.warning("%r is a list of another length in another group: not averaged", key)
        if not having:
            if len(set(map(len, lists))) == 1:
                result[key] = _mean_list(lists, [w for _, w in pairs])
        elif key in (protocol.REPLIES, protocol.FAILED, protocol.DROPPED):
            result[key] = int(sum(value for value, _ in having))
        else:
            total = _sum_in_order(w for _, w in having)
            result[key] = _sum_in_order(
                value * (w / total) for value, w in having
            )  # of one record: as it was
    return result


def _mean_list(lists: Sequence[Sequence[float]], weights: Sequence[float]) -> list[float]:
    total = _sum_in_order(weights)
    return [
        _sum_in_order(v * (w / total) for v, w in zip(row, weights, strict=True))
        for row in zip(*lists, strict=True)
    ]


def _sum_in_order(values: Iterable[float]) -> float:
    """Return the sum from left to right, on every Python: from 3.12 on ``sum`` corrects its rounding."""
    return reduce(add, values, 0.0)


MAX_STALLED_ROUNDS = 3  # from the first one on
STALL_ADVICE = (
    "look for a learning rate that is too small, frozen parameters, a loss that does not depend on them, "
    "or a client that returns the model it was sent"
)
FAILED_NODES_ADVICE = "look at the nodes, or lower min_replies"
DIVERGENCE_ADVICE = "the losses are no numbers: lower the learning rate of the clients"
TRACEBACK_START = "Traceback (most recent call last):"  # begins what a reply's reason ends with
CLIENT_FN_ERRORS = ("fitins.parameters", "evaluateins.parameters")  # what Flower's older clients look for
CLIENT_FN_ADVICE = (
    "its ClientApp is made of a client_fn, as with NumPyClient, and answers older messages: give it "
    "functions with @app.train() and @app.evaluate()"
)


class TooManyFailedRounds(RuntimeError):
    """Too few nodes replied, or none moved the model, too many rounds in a row."""


@dataclass
class FailurePolicy:
    """Ends a run after too many rounds in a row without a step.

    Parameters
    ----------
    min_replies : with fewer sound replies a round takes no step
    max_failed_rounds : how many such rounds in a row end the run

    Attributes
    ----------
    num_failed : how many rounds in a row have taken no step
    last_failure : why the last of them did not
    fatal_reason : why no round can ever take a step; empty where one may
    """

    min_replies: int = 1
    max_failed_rounds: int = 3
    num_failed: int = field(default=0, init=False)
    last_failure: str = field(default="", init=False)
    fatal_reason: str = field(default="", init=False)

    def require_replies(self, count: int) -> None:
        """Raise ``Lacking`` for fewer than ``min_replies``."""
        if count < self.min_replies:
            raise MissingReplies(f"{count} sound replies, min_replies={self.min_replies}")

    def count(self, server_round: int, lack: NoStep, faults: Sequence[str], advice: str) -> None:
        """Count a round without a step.

        Parameters
        ----------
        faults : why nodes are left out of it, a line each
        advice : what to do about it

        Raises
        ------
        TooManyFailedRounds : where it is one too many
        """
        self.num_failed += 1
        logger.warning("round %d: %s: the model stays as it was", server_round, lack)
        reasons = "; ".join(faults[:3]) or "none"
        self.last_failure = f"{lack} (left out in the last round: {reasons}); {advice}"
        if self.num_failed >= self.max_failed_rounds:
            raise TooManyFailedRounds(f"{self.num_failed} rounds in a row failed: {self.last_failure}")


class StallDetector:
    """Watches the rounds of one model.

    Once a node has moved a parameter, later rounds without movement are only logged: training may have
    reached the precision of its arithmetic.
    """

    def __init__(self, *, alone: bool = True) -> None:
        self.is_alone = (
            alone  # False for the model of one group among others: see :func:`warn_of_stalled_models`
        )
        self.has_ever_moved = False  # whether any node has ever moved a parameter
        self.num_stalled = 0  # rounds without movement so far
        self.is_stalled = False  # whether the first MAX_STALLED_ROUNDS were all without
        self.is_reported = False

    def count_round(self, server_round: int, moved: bool, rates: Tensor | None) -> None:
        """Take note of a round.

        Parameters
        ----------
        moved : whether any node returned another parameter than it was sent
        rates : the nodes' learning rates [K]; None where not all of them tell

        Raises
        ------
        TooManyFailedRounds : when no node has moved anything in the first three rounds, at learning rates
            above 0
        """
        if moved:
            self.has_ever_moved, self.is_stalled = True, False
            return
        if rates is not None and not rates.any():
            return
        self.num_stalled += 1
        self.is_stalled = (
            rates is not None and not self.has_ever_moved and self.num_stalled >= MAX_STALLED_ROUNDS
        )
        if self.is_alone:
            warn_of_stalled_models(server_round, {"": self})

    def state_dict(self) -> dict[str, Any]:
        """Return what the next round depends on."""
        return {"seen": self.has_ever_moved, "still": self.num_stalled, "named": self.is_reported}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from it."""
        self.has_ever_moved, self.num_stalled, self.is_reported = (
            state["seen"],
            state["still"],
            state["named"],
        )


def warn_of_stalled_models(server_round: int, movements: Mapping[str, StallDetector]) -> None:
    """Name the models, by group, that no node has moved, each once.

    Raises
    ------
    TooManyFailedRounds : when no model has moved in its first three rounds, at learning rates above 0
    """
    still = [
        name for name, movement in movements.items() if movement.num_stalled and not movement.is_reported
    ]
    if still:
        others = f" and {len(still) - 3} more" if len(still) > 3 else ""
        whose = f" of {', '.join(still[:3])}{others}" if still[0] else ""
        logger.warning("round %d: no node%s has moved any parameter: %s", server_round, whose, STALL_ADVICE)
    for name in still:
        movements[name].is_reported = True
    if all(movement.is_stalled for movement in movements.values()):
        rounds = min(movement.num_stalled for movement in movements.values())
        raise TooManyFailedRounds(f"no node has moved any parameter in {rounds} rounds: {STALL_ADVICE}")


def get_error_reason(reply: Message) -> str:
    """Return why a node failed, in one line, without its traceback."""
    reason, _, _ = (reply.error.reason or "").partition(TRACEBACK_START)
    if any(name in reason for name in CLIENT_FN_ERRORS):
        return CLIENT_FN_ADVICE
    return " ".join(reason.split()) or f"failed with code {reply.error.code}"


def stop_if_all_failed(num_sent: int, answered: Mapping[int, Message]) -> None:
    """End a run in which all of several nodes have raised the same error: so they would in each round.

    Logs one traceback, where the nodes have sent theirs.

    Raises
    ------
    TooManyFailedRounds : with the error
    """
    errors = [r for r in answered.values() if r.has_error() and r.error.code not in UNREACHABLE_CODES]
    reasons = {get_error_reason(reply) for reply in errors}
    if num_sent < 2 or len(errors) < num_sent or len(reasons) > 1:
        return
    _, separator, traceback = (errors[0].error.reason or "").partition(TRACEBACK_START)
    if separator:
        logger.error("%s%s", separator, traceback)
    raise TooManyFailedRounds(
        f"all {num_sent} nodes failed in round 1 with the same error: {reasons.pop()}"
    )


# Flower's strategies of differential privacy, around one of this package's, clip the nodes' models before
# ``aggregate_train`` and add noise to what it returns, as much as a mean needs. A step that is longer, or is
# made of the clipped updates in another way, is not covered by it.

FLOWER_PRIVACY_WRAPPERS = (
    flower.DifferentialPrivacyClientSideAdaptiveClipping,
    flower.DifferentialPrivacyClientSideFixedClipping,
    flower.DifferentialPrivacyServerSideAdaptiveClipping,
    flower.DifferentialPrivacyServerSideFixedClipping,
)


def require_covered(strategy: object, beyond: str) -> None:
    """Raise ``ValueError`` where a wrapper of Flower's calls a strategy that its noise does not cover.

    To be called in a hook of Flower's. ``beyond`` names what is more than a plain mean; empty for nothing.
    """
    if fault := describe_uncovered(_find_caller(strategy) if beyond else None, strategy, beyond):
        raise ValueError(f"{fault}: choose FedAvg, or privacy=CentralPrivacy(...) without the wrapper")


def describe_uncovered(wrapper: object, strategy: object, beyond: str) -> str:
    """Return what of a strategy the noise of a wrapper around it does not cover; empty for nothing."""
    if not beyond or not isinstance(wrapper, FLOWER_PRIVACY_WRAPPERS):
        return ""
    named = f"{beyond} of {type(strategy).__name__}"
    return f"{type(wrapper).__name__} adds the noise of a mean, which does not cover {named}"


def _find_caller(strategy: object) -> object:
    """Return the object whose method calls one of the strategy's, found on the call stack."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__") == __name__:
        frame = frame.f_back
    while frame is not None and frame.f_locals.get("self") is strategy:
        frame = frame.f_back
    return None if frame is None else frame.f_locals.get("self")
