"""The corrections that ``client.corrections`` names, before a round begins: are their settings in range?"""

from collections.abc import Callable, Mapping
from functools import partial
from inspect import Parameter, signature

from .correction import Correction, RoundStart

Begin = Callable[[RoundStart], Correction]  # mostly a class with its settings


def check(corrections: Mapping[str, Begin]) -> None:
    """Raise ``ValueError`` for a setting that is out of range, missing, or unknown to the correction."""
    for name, begin in corrections.items():
        kind = begin.func if isinstance(begin, partial) else begin
        if isinstance(kind, type) and issubclass(kind, Correction):
            given = begin.keywords if isinstance(begin, partial) else {}
            _, *takes = signature(kind).parameters.values()  # the first is the round's start
            try:
                settings = signature(kind).replace(parameters=takes).bind(**given)
            except TypeError as error:
                expected = ", ".join(str(p.replace(annotation=Parameter.empty)) for p in takes)
                raise ValueError(
                    f"client.corrections.{name}={kind.__name__} cannot be built ({error}): "
                    f"expected {expected or 'no settings'}"
                ) from error
            settings.apply_defaults()
            kind.check_settings(*settings.args, **settings.kwargs)


def remembers(begin: object) -> bool:
    """Say whether what begins a correction, mostly its class, keeps anything from round to round."""
    return bool(getattr(getattr(begin, "func", begin), "remembers", False))
