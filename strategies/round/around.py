"""Around: a strategy that plays its rounds with copies of another, and what it passes on to it."""

from collections.abc import Iterable
from dataclasses import dataclass

from flwr.app import ArrayRecord, ConfigScalar

from .evaluation import Gradient, SuiteStrategy


@dataclass(kw_only=True, eq=False)
class Around(SuiteStrategy):
    """What is the same for all copies is asked of, and told to, ``inner``, the one they are copied from."""

    inner: SuiteStrategy

    def asks(self) -> dict[str, ConfigScalar]:
        return self.inner.asks()

    def contributions(self) -> dict[str, dict[str, int]]:
        return self.inner.contributions()

    def freeze(self, names: Iterable[str]) -> None:
        self.inner.freeze(names)

    def measure_norms(self) -> None:
        self.inner.measure_norms()

    @property
    def nodes_remember(self) -> bool:
        return self.inner.nodes_remember

    @property
    def needs_validation(self) -> bool:
        return self.inner.needs_validation

    def learn_with(self, gradient: Gradient) -> None:
        self.inner.learn_with(gradient)

    def fail_within(self, rounds: int) -> None:
        self.inner.fail_within(rounds)

    def check(self, arrays: ArrayRecord) -> object:
        return self.inner.check(arrays)

    def summary(self) -> None:
        self.inner.summary()
