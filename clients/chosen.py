"""The corrections that ``client.corrections`` names, before a round begins: are their settings in range?"""

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from inspect import BoundArguments, signature

from .correction import Correction, RoundStart

Begin = Callable[[RoundStart], Correction]  # mostly a class with its settings


def check(corrections: Mapping[str, Begin]) -> None:
    """Raise ``ValueError`` for a setting that is out of range, missing, or unknown to the correction."""
    for _, kind, bound in _bound(corrections):
        kind.check_settings(*bound.args[1:], **bound.kwargs)


def without_effect(corrections: Mapping[str, Begin], work: Collection[tuple[int, int]]) -> Iterator[str]:
    """Yield a line for each correction that does nothing at any node.

    ``work`` are the nodes' numbers of steps: in a round, and in an epoch.
    """
    for name, kind, bound in _bound(corrections):
        reasons = [kind.no_effect(*steps, *bound.args[1:], **bound.kwargs) for steps in work]
        if reasons and all(reasons):
            yield f"client.corrections.{name} {reasons[0]}"


def _bound(corrections: Mapping[str, Begin]) -> Iterator[tuple[str, type[Correction], BoundArguments]]:
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
            raise ValueError(
                f"client.corrections.{name}={kind.__name__} cannot be built ({error}): "
                f"expected {', '.join(settings) or 'no settings'}"
            ) from error
        bound.apply_defaults()
        yield name, kind, bound


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
