"""Own state: what a strategy of the user's own keeps from round to round, and no checkpoint would hold."""

from dataclasses import fields, is_dataclass
from functools import cached_property
from typing import Any

from baselines.errors import UserError
from strategies.round.evaluation import SuiteStrategy

WHAT_TO_DO = "which its state_dict does not hold: give it state_dict and load_state_dict, or set"


def unsaved(strategy: Any) -> list[str]:
    """Return the fields that the suite's ``state_dict`` does not hold."""
    suite = _saved_by(strategy)
    held = {field.name for field in fields(suite)} if suite else set()
    return [field.name for field in fields(strategy) if suite and not field.init and field.name not in held]


class Watched:
    """The attributes that are no fields: they are seen when they are set, in the first round or later.

    What a ``cached_property`` holds is none of them: it is computed again.

    Parameters
    ----------
    strategy : as it is before its first round
    """

    def __init__(self, strategy: SuiteStrategy) -> None:
        self.strategy: Any = strategy
        self._before = self._undeclared()

    def check(self) -> None:
        """Raise ``UserError`` where a round has set one: what resumes would go on without it."""
        then = self._before
        now = self._undeclared()
        if lost := [name for name, value in now.items() if name not in then or value is not then[name]]:
            named = f"{self.strategy.name} keeps {', '.join(lost)}"
            raise UserError(f"{named}, {WHAT_TO_DO} checkpoint_every=0")

    def _undeclared(self) -> dict[str, object]:
        suite = _saved_by(self.strategy)
        if suite is None or type(self.strategy) is suite:
            return {}
        known = {field.name for field in fields(self.strategy)} | {"_roster"}
        there = vars(self.strategy).items()
        return {name: value for name, value in there if name not in known and not self._is_computed(name)}

    def _is_computed(self, name: str) -> bool:
        return isinstance(getattr(type(self.strategy), name, None), cached_property)


def _saved_by(strategy: Any) -> Any:
    """Return the suite's class that a strategy is of, where the ``state_dict`` is the suite's."""
    kinds = type(strategy).__mro__
    saving = next(kind for kind in kinds if "state_dict" in vars(kind))
    suite = next(kind for kind in kinds if kind.__module__.startswith("strategies."))
    whole = saving.__module__.startswith("strategies.") and is_dataclass(strategy) and is_dataclass(suite)
    return suite if whole else None
