"""The corrections that ``client.corrections`` names, before a round begins: are their settings in range?"""

from collections.abc import Callable, Mapping
from functools import partial
from inspect import signature

from .correction import Correction, RoundStart

Begin = Callable[[RoundStart], Correction]  # mostly a class with its settings


def check(corrections: Mapping[str, Begin]) -> None:
    """Raise ``ValueError`` for a setting that is out of range, missing, or unknown to the correction."""
    for name, begin in corrections.items():
        whole = begin if isinstance(begin, partial) else partial(begin)
        kind = whole.func
        if isinstance(kind, type) and issubclass(kind, Correction):
            takes = signature(kind)
            try:
                bound = takes.bind(*whole.args, None, **whole.keywords)  # None: the start is still to come
            except TypeError as error:
                settings = [str(p.replace(annotation=p.empty)) for p in takes.parameters.values()][1:]
                raise ValueError(
                    f"client.corrections.{name}={kind.__name__} cannot be built ({error}): "
                    f"expected {', '.join(settings) or 'no settings'}"
                ) from error
            bound.apply_defaults()
            kind.check_settings(*bound.args[1:], **bound.kwargs)


def remembers(begin: object) -> bool:
    """Say whether what begins a correction, mostly its class, keeps anything from round to round."""
    return bool(getattr(kind_of(begin), "remembers", False))


def in_order(corrections: Mapping[str, Begin]) -> list[Begin]:
    """Return what begins the corrections; last what changes the model, at whose values the others look."""
    return sorted(corrections.values(), key=starts_elsewhere)


def starts_elsewhere(begin: object) -> bool:
    """Say whether the node then begins from another model than the one it was sent."""
    return bool(getattr(kind_of(begin), "starts_elsewhere", False))


def kind_of(begin: object) -> object:
    """Return what is called with the round's start, mostly the correction's class."""
    return getattr(begin, "func", begin)
