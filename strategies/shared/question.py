"""The question that a strategy asks candidates before a round (:mod:`strategies.core.questions`)."""

from dataclasses import dataclass

from flwr.app import ConfigScalar

from . import protocol
from .checks import require, require_count


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
