"""One line for every hyper-parameter out of range."""

import math
from abc import ABCMeta
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from . import protocol


def require(valid: bool, name: str, value: object, expected: str) -> None:
    """Raise ``ValueError`` with one line that names the value and what was expected."""
    if not valid or (isinstance(value, float) and math.isnan(value)):
        raise ValueError(f"{name}={value} is out of range: expected {expected}")


def require_count(name: str, value: object, *, optional: bool = False) -> None:
    """Raise ``ValueError`` for anything but a whole number above 0, or None where that is allowed."""
    whole = isinstance(value, int) and not isinstance(value, bool) and value >= 1
    valid = whole or (optional and value is None)
    require(valid, name, value, "a whole number above 0" + ", or null" * optional)


def require_parts(whole: Any) -> None:
    """Raise ``ValueError`` with one line for a field of a dataclass that holds no part of its kind.

    A part's kind is the field's annotation, an abstract base class; a default is taken as it is. A subclass
    that gives another default without being a dataclass, or without an annotation, would have the old one.
    """
    for field in fields(whole):
        if field.init and getattr(type(whole), field.name, field.default) is not field.default:
            name = type(whole).__name__
            raise ValueError(
                f"{name}.{field.name} is not a dataclass field and would be ignored: decorate {name} with "
                f"@dataclass(kw_only=True, eq=False), and annotate {field.name}"
            )
        kind, value = field.type, getattr(whole, field.name, None)
        if not field.init or not isinstance(kind, ABCMeta) or value is field.default:
            continue
        if not isinstance(value, kind):
            text = f"{value.__name__}, a class" if isinstance(value, type) else repr(value)
            article = "an" if kind.__name__[0] in "AEIOU" else "a"
            example = f", e.g. {field.default!r}" if isinstance(field.default, kind) else ""
            raise ValueError(f"{field.name}={text}: expected {article} {kind.__name__}{example}")


def require_named_part(strategy: object, name: str, part: str) -> None:
    """Raise ``ValueError`` where a method lacks the part that it is named for: then it is another method.

    ``part`` is the field; its default says of which class the part has to be. Empty: any will do.
    """
    if not part:
        return
    kind, actual = type(getattr(type(strategy), part)), getattr(strategy, part)
    if not isinstance(actual, kind):
        raise ValueError(
            f"strategy={name} needs {part}={kind.__name__}, not {type(actual).__name__}: leave the {part} "
            f"out or set it to that, or choose another strategy, e.g. strategy=fedavg"
        )


# Divergence: a model whose outputs are not numbers has no measure.
#
# ``argmax``, signs and comparisons make something of NaN all the same: the accuracy of a model of NaN would
# be the share of class 0.


COUNT_METRICS = (
    protocol.NUM_EXAMPLES,
    protocol.PARTITION_ID,
)  # of an evaluation, and no measures of the model


def void_measures(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return the metrics of an evaluation, each measure NaN where the loss is NaN."""
    loss = metrics.get(protocol.LOSS)
    if not isinstance(loss, float) or not math.isnan(loss):
        return dict(metrics)
    return {name: value if is_count(name) else math.nan for name, value in metrics.items()}


def has_diverged(metrics: Mapping[str, float]) -> bool:
    """Say whether the loss of an evaluation is not finite; without a loss, whether no measure is."""
    measures = {name: value for name, value in metrics.items() if not is_count(name)}
    if protocol.LOSS in measures:
        return not math.isfinite(measures[protocol.LOSS])
    return bool(measures) and not any(map(math.isfinite, measures.values()))


def is_count(name: str) -> bool:
    """Say whether a metric of an evaluation, by either of its names, measures nothing of the model."""
    return name.replace("_", "-") in COUNT_METRICS


# A row of the table of what does not go together.
#
# ``baselines/experiment/compatibility.py`` is the table. Parts that are used from plain Python, too, refuse by
# themselves, and a row names the check; batching is decided at a node, and has its rows there.


@dataclass(frozen=True)
class Conflict:
    """Two choices of a configuration that exclude each other.

    Parameters
    ----------
    choice, other : as the command line has them
    reason : why, in a few words
    find : returns the message for what is known (an experiment, or a round's nodes), or True if it is
        ``reason``; None or False where at most one of the two is chosen
    checked_by : in place of ``find``, the full name of what refuses them, in plain Python, too
    example : overrides that choose both; empty where the options in conf/ cannot
    """

    choice: str
    other: str
    reason: str
    find: Callable[[Any], str | bool | None] | None = None
    checked_by: str = ""
    example: str = ""


def first_message(conflicts: Iterable[Conflict], known: Any) -> str | None:
    """Return the message of the first row whose choices are both made; None where there is none."""
    for conflict in conflicts:
        if conflict.find and (message := conflict.find(known)):
            return conflict.reason if message is True else str(message)
    return None
