"""A part that a strategy's own step does not use has no effect, and is named in one warning.

The package's update rule applies every part. A strategy of the user's own may replace it (``take_step``) and
leave some of them out, and so may an aggregation leave out the mask. The first step tells: a part that was
chosen, and is not read while the step is taken, has no effect in any round.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from .strategy import TooManyFailedRounds

logger = logging.getLogger("flwr.strategies")

# What a step reads to apply each part.
ATTRIBUTE_OF_PART = {
    "weighting": "weighting",
    "aggregation": "aggregation",
    "server_optimizer": "server_optimizer",
    "mask": "mask",
    "step_size": "step_size",
    "privacy": "accountant",
}
UNUSED_PARTS_WARNING = (
    "strategy=%s takes its step without %s: no effect; leave it out, or let take_step apply it"
)
PRIVACY_ERROR = (
    "privacy would not hold: the step of strategy={} neither clips the updates nor adds noise; let take_step "
    "call self.accountant.clip_ and self.accountant.noise_, or set privacy=none"
)


@dataclass
class UnusedPartCheck:
    """The first step of a user's own rule: which of the parts that were chosen does it leave out?"""

    has_checked: bool = False  # whether there has been such a step
    _reported: set[str] = field(default_factory=set)

    @contextmanager
    def check_step(self, strategy: Any) -> Iterator[None]:
        """Watch the step that is taken within; warn of parts that are left out.

        Raises
        ------
        TooManyFailedRounds : where privacy was left out, and the run would report an epsilon
        """
        candidates = _find_chosen_parts(strategy)
        with _record_reads(strategy, is_watched=bool(candidates)) as read:
            yield
        self.has_checked = True
        left_out = {part for part, attribute in candidates.items() if attribute not in read}
        self.report(strategy, set() if "_rule" in read else left_out)  # the rule applies every part

    def report(self, strategy: Any, unused: set[str]) -> None:
        """Warn of parts that were left out, once; raise ``TooManyFailedRounds`` where privacy was."""
        if "privacy" in unused:
            raise TooManyFailedRounds(PRIVACY_ERROR.format(strategy.name))
        if new := unused - self._reported:
            parts = ", ".join(f"{part}={getattr(strategy, part)!r}" for part in sorted(new))
            logger.warning(UNUSED_PARTS_WARNING, strategy.name, parts)
            self._reported |= new


def _find_chosen_parts(strategy: Any) -> dict[str, str]:
    """Return the parts that are not the strategy's defaults, and what a step reads to apply each."""
    kind = type(strategy)
    chosen = {
        part: attribute
        for part, attribute in ATTRIBUTE_OF_PART.items()
        if getattr(strategy, part) != getattr(kind, part)
    }
    if strategy.privacy.is_local:
        chosen.pop("privacy", None)
    return chosen


@contextmanager
def _record_reads(strategy: Any, is_watched: bool) -> Iterator[set[str]]:
    """Yield a set that fills with the names of the attributes that are read of a strategy."""
    read = set[str]()
    if not is_watched:
        yield read
        return
    kind: Any = type(strategy)

    def note(self: object, name: str) -> Any:
        read.add(name)
        return kind.__getattribute__(self, name)

    names = {"__slots__": (), "__module__": kind.__module__, "__qualname__": kind.__qualname__}
    meta: Any = type(kind)
    strategy.__class__ = meta(kind.__name__, (kind,), {**names, "__getattribute__": note})
    try:
        yield read
    finally:
        strategy.__class__ = kind
