"""Answer Flower's and the papers' names of settings with ours, and misspelt names of hooks.

A setting of a part is advised with the part that the class has: FedYogi's ``tau`` is the ``epsilon`` of its
``Yogi``, FedGMA's the ``tau`` of its ``AgreementMask``.
"""

import inspect
import logging
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from functools import cache, cached_property
from types import FunctionType
from typing import Any, ClassVar

logger = logging.getLogger("flwr")

UNEXPECTED_KEYWORD = re.compile(r"(?:^|\.)(\w+)\.__init__\(\) got an unexpected keyword argument '(\w+)'")
PART_NAMES = {  # what a part calls a name of Flower's or of a paper
    "tau": ("tau", "epsilon"),
    "eta": ("eta",),
    "beta_1": ("beta1",),
    "beta_2": ("beta2",),
    "server_learning_rate": ("eta",),
    "server_momentum": ("beta", "beta1"),
    "client_learning_rate": ("lipschitz",),
    "num_malicious_nodes": ("num_hostile",),
    "num_nodes_to_select": ("num_selected",),
    "weighted_by_key": ("key",),
}
NEUTRAL_PARTS = (
    "ByExamples",
    "Uniform",
    "Mean",
    "Identity",
    "NoMask",
    "Constant",
)  # may give way to another part
PART_OF_SETTING = {  # the part to choose where the class has a neutral one
    "eta": ("step_size", "Constant(eta=...)"),
    "server_learning_rate": ("step_size", "Constant(eta=...)"),
    "server_momentum": ("server_optimizer", "Momentum(beta=...)"),
    "beta_1": ("server_optimizer", "Adam(beta1=...)"),
    "beta_2": ("server_optimizer", "Adam(beta2=...)"),
    "beta": ("aggregation", "TrimmedMean(share=...) and weighting=Uniform()"),
    "num_malicious_nodes": ("aggregation", "Krum(num_hostile=...) and weighting=Uniform()"),
    "num_nodes_to_select": ("aggregation", "Krum(num_selected=...) and weighting=Uniform()"),
    "q": ("aggregation", "Fair(q=...) and weighting=Uniform(), as QFedAvg has them"),
    "weighted_by_key": ("weighting", "ByExamples(key=...)"),
}
NODE_SETTING_ADVICE = "leave it out: the nodes' learning rate is their ClientApp's, e.g. by train_config"
ADVICE_OF_NAME = {
    "min_train_nodes": "set min_replies, with fewer of which a round takes no step",
    "min_available_nodes": "set num_nodes, how many nodes to wait for",
    "min_evaluate_nodes": "leave it out: fraction_evaluate says how many nodes evaluate",
    "tau": "set mask=AgreementMask(tau=...), as FedGMA, or server_optimizer=Adam(epsilon=...), as FedAdam",
    "proximal_mu": "choose FedProx(mu=...)",
    "arrayrecord_key": "leave it out: messages carry the model as 'arrays'",
    "configrecord_key": "leave it out: messages carry their configuration as 'config'",
    "train_loss_key": "leave it out: nodes send the loss of the model that they were sent as 'start-loss'",
    "client_learning_rate": NODE_SETTING_ADVICE,
    "eta_l": NODE_SETTING_ADVICE,
}
FLOWER_ONLY_NAMES = {  # no method's own letters
    *("min_train_nodes", "min_available_nodes", "min_evaluate_nodes"),
    *("weighted_by_key", "arrayrecord_key", "configrecord_key"),
}
OWN_PACKAGES = ("baselines", "clients", "strategies")
FLOWER_NAMES = PART_NAMES.keys() | PART_OF_SETTING.keys() | ADVICE_OF_NAME.keys()


def explain_unexpected_keyword(error: TypeError, kind: type, inner: object = None) -> str:
    """Return one line on a keyword that the class ``kind`` does not take; empty where there is none."""
    unexpected = UNEXPECTED_KEYWORD.search(str(error))
    if unexpected is None or unexpected[1] not in {one.__name__ for one in kind.__mro__}:
        return ""
    return find_advice(kind, unexpected[2], inner)


def find_advice(kind: type, name: str, inner: object = None) -> str:
    """Return one line with what to write in place of a name; empty where there is nothing to say.

    ``inner`` is the strategy that one of this kind wraps.
    """
    lacks = f"{kind.__name__} has no {name}" + ", a name of Flower's" * (name in FLOWER_NAMES)
    taken = settings_of(kind)
    if "inner" not in taken:
        instead = _find_replacement(kind, name)
        return f"{lacks}: {instead}" if instead else ""
    around = taken["inner"] if inner is None else type(inner)
    if name in settings_of(around):
        return f"{lacks}: set it in inner"
    instead = _find_replacement(around, name)
    return f"{lacks}: in inner, {instead}" if instead else ""


def settings_of(kind: Any) -> dict[str, Any]:
    """Return the types of the settings that a strategy or a part takes, by name."""
    return {field.name: field.type for field in fields(kind) if field.init} if is_dataclass(kind) else {}


def _find_replacement(kind: type, name: str) -> str:
    taken = settings_of(kind)
    if name == "proximal_mu" and "mu" in taken:
        return "set mu"
    parts = {slot: part for slot in taken if is_dataclass(part := getattr(kind, slot, None))}
    for setting in PART_NAMES.get(name, (name,)):
        for slot, part in parts.items():
            if setting in settings_of(part):
                value = "1 / client_learning_rate" if setting == "lipschitz" else "..."
                return f"set {slot}={type(part).__name__}({setting}={value})"
    if name not in PART_OF_SETTING:
        return ADVICE_OF_NAME.get(name, "")
    slot, choice = PART_OF_SETTING[name]
    own = type(parts.get(slot)).__name__
    return f"set {slot}={choice}" if own in NEUTRAL_PARTS else f"leave it out: its {slot}, {own}, has none"


# Old names of the methods that a user's classes define: they work for one release.


OLD_NAMES_OF_SUMS = ("needs_only_mean", "of_mean")
METHODS = FunctionType, classmethod, staticmethod, property, cached_property


class HasHooks:
    """Base of what users subclass: what a subclass defines is checked once, when it is made."""

    renamed: ClassVar[Mapping[str, str]] = {}  # what it may define by an old name, for one release

    def __init_subclass__(cls, **settings: Any) -> None:
        """Accept old names, name misspelt hooks, and refuse a method for a property."""
        super().__init_subclass__(**settings)
        accept_old_names(cls, cls.renamed)
        warn_of_misspelt_hooks(cls)
        for name in [name for name, value in vars(cls).items() if inspect.isfunction(value)]:
            hooks = [vars(base).get(name) for base in cls.__mro__[1:] if name not in cls.renamed]
            if any(isinstance(hook, property) for hook in hooks):  # a method would always be true
                raise TypeError(f"{cls.__name__}.{name} is a method: decorate it with @property")


def warn_of_misspelt_hooks(cls: type) -> None:
    """Log which methods of a class of the user's own override nothing and are named almost as one that it has."""
    if cls.__module__.partition(".")[0] in OWN_PACKAGES:
        return
    hooks = {name for base in cls.__mro__[1:] for name in vars(base) if not name.startswith("_")}
    own = [name for name, value in vars(cls).items() if isinstance(value, METHODS) and name not in hooks]
    for name in own:
        if near := get_close_matches(name, hooks, 1, 0.9):
            logger.warning("%s.%s overrides nothing: did you mean %s?", cls.__name__, name, near[0])


def accept_old_names(cls: type, renamed: Mapping[str, str]) -> None:
    """Let a class that defines a method by its old name have it by the new one, with a line in the log.

    The old name of what it defines by the new one works as well, for subclasses that call ``super()``.
    """
    own = vars(cls)
    used = {old: new for old, new in renamed.items() if old in own and new not in own}
    for old, new in used.items():
        setattr(cls, new, own[old])
    for old in OLD_NAMES_OF_SUMS:
        if old in own and "sums" not in own:
            cls.sums = () if own[old] else None  # type: ignore[attr-defined]
            used[old] = "sums, () for True and None for False"
    for old, new in renamed.items():
        can_be_set = getattr(getattr(cls, old, None), "fset", None) is not None  # a property that delegates
        if new in own and old not in own and not can_be_set:
            setattr(cls, old, own[new])
    if used:
        warn_of_old_names(cls, used)


def warn_of_old_names(cls: type, used: Mapping[str, str]) -> None:
    """Log once which names of a class are old, and the new ones."""
    _warn_once(cls, _describe_old_names(cls, used))


def old_attribute(old: str, new: str) -> Any:
    """Return a property that reads and writes the attribute ``new``, with a line in the log for each class."""

    def read(self: object) -> Any:
        kind = type(self)
        _warn_once((kind.__module__, kind.__qualname__), _describe_old_names(kind, {old: new}))
        return getattr(self, new)

    def write(self: object, value: object) -> None:
        setattr(self, new, value)

    return property(read, write)


def _describe_old_names(cls: type, used: Mapping[str, str]) -> str:
    names = ", ".join(f"{old} is now {new}" for old, new in used.items())
    return f"{cls.__qualname__}: {names}; old names work in this release alone"


@cache
def _warn_once(key: object, line: str) -> None:
    logger.warning(line)
