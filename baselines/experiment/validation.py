"""Check the ranges of settings that belong to no part."""

import math
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib import import_module
from inspect import Parameter, signature
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Protocol, Union, get_args, get_origin, runtime_checkable

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from baselines.errors import UserError
from strategies.shared.flower_names import warn_of_misspelt_hooks

from .messages import describe_unresolved, option_of

# The settings of a run besides its parts, under their names in config.yaml.


DEVICES = "cpu, cuda, mps, xpu or auto"  # torch's names


@dataclass(frozen=True)
class Evaluation:
    """Which further metrics are measured."""

    max_share: float | None
    node_spread: bool
    per_class: bool
    per_node: bool


@dataclass(frozen=True)
class EarlyStopping:
    """When a run ends before its last round."""

    patience: int | None
    metric: str


NESTED_SETTINGS = {"evaluation": Evaluation, "early_stopping": EarlyStopping}


@dataclass(frozen=True)
class Settings:
    """The plain values of an experiment; conf/config.yaml says what each of them means."""

    seed: int
    rounds: int
    num_nodes: int
    nodes_per_round: int | None
    node_test_fraction: float
    central_test: str
    validation_size: int
    server_inputs: str | None
    evaluate_every: int
    timeout: float
    quorum: int | None
    round_deadline: float | None
    device: str
    device_memory_share: float
    threads: int
    resume: bool | None
    checkpoint_every: int
    checkpoint_keep: int
    objective: str
    count_bytes: bool | str
    save: str | None
    evaluation: Evaluation
    early_stopping: EarlyStopping

    @classmethod
    def of(cls, cfg: DictConfig) -> "Settings":
        """Return those of a configuration."""
        plain = {field.name: cfg[field.name] for field in fields(cls) if field.name not in NESTED_SETTINGS}
        return cls(**plain, **{name: kind(**cfg[name]) for name, kind in NESTED_SETTINGS.items()})

    @property
    def validates(self) -> bool:
        """Whether models are evaluated on the validation examples: if a metric refers to them."""
        stops = self.early_stopping.metric if self.early_stopping.patience is not None else ""
        return any(name.startswith("validation/") for name in (self.objective, stops))

    @property
    def nodes_in_round(self) -> int:
        """How many nodes train in a round."""
        return min(self.nodes_per_round or self.num_nodes, self.num_nodes)


# Annotations: whether a configuration's value fits a signature, and what to give instead.


SCALAR_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
GENERAL_MODULES = ("builtins", "collections.abc")  # of lists and the like, as an array is iterable too
OWN_MODULES = ("strategies.", "clients.", "baselines.")


def fits(value: object, annotation: Any) -> bool:
    """Say whether a value may fit an annotation; types unknown here, such as a tensor, fit any value."""
    origin = get_origin(annotation)
    if origin in (Union, UnionType):
        return _fits_one(value, get_args(annotation))
    if origin is Literal:
        return value in get_args(annotation)
    if annotation in (None, NoneType):
        return value is None
    if annotation in SCALAR_WORDS:
        return _fits_scalar(value, annotation)
    if origin is Callable or _is_ours(annotation):
        return is_part(value, annotation)
    kind = origin or annotation
    if isinstance(kind, type) and issubclass(kind, Mapping):
        return isinstance(value, DictConfig) and not value._is_none()
    if isinstance(kind, type) and issubclass(kind, Iterable) and kind.__module__ in GENERAL_MODULES:
        return isinstance(value, ListConfig) and _fit(value, kind, get_args(annotation))
    return True


def _fits_one(value: object, annotations: Collection[Any]) -> bool:
    return any(
        fits(value, annotation) if _is_known(annotation) else is_part(value, annotation)
        for annotation in annotations
    )


def _is_known(annotation: Any) -> bool:
    """Say whether :func:`fits` can check this annotation."""
    plain = annotation in (None, NoneType, Any, object) or annotation in SCALAR_WORDS
    return plain or get_origin(annotation) is not None or _is_ours(annotation)


def _is_ours(annotation: Any) -> bool:
    return isinstance(annotation, type) and annotation.__module__.startswith(OWN_MODULES)


def _fits_scalar(value: object, kind: type) -> bool:
    """Say whether a value has a scalar type; true, NaN and integers too large for a float are no numbers."""
    if kind is float and type(value) is int:
        return abs(value) <= sys.float_info.max
    return type(value) is kind and not (isinstance(value, float) and math.isnan(value))


def _fit(values: ListConfig, kind: type, kinds: tuple[Any, ...]) -> bool:
    """Say whether a list's items fit: a tuple has one type per item, other lists one for all."""
    if kind is tuple and kinds and kinds[-1] is not Ellipsis:
        pairs = zip(values, kinds, strict=False)
        return len(values) == len(kinds) and all(fits(value, kind) for value, kind in pairs)
    finite = not any(isinstance(value, float) and math.isinf(value) for value in values)
    return finite and (not kinds or all(fits(value, kinds[0]) for value in values))


def is_part(value: object, kind: Any) -> bool:
    """Say whether a value names something to build; a class must be of the given kind.

    A function's result is unknown, and a missing target is reported when it is built; both pass.
    """
    if not isinstance(value, DictConfig) or value._is_none() or "_target_" not in value:
        return False
    target = find_object(str(value.get("_target_")))
    if not isinstance(target, type):
        return True
    partial = value.get("_partial_", False)
    if get_origin(kind) is Callable:
        return partial or any("__call__" in vars(base) for base in target.__mro__)
    return not isinstance(kind, type) or (issubclass(target, kind) and not partial)


def find_object(name: str) -> Any:
    """Return the object of a dotted name; None if it cannot be imported."""
    module, _, last = name.rpartition(".")
    try:
        return getattr(import_module(module), last)
    except Exception:
        return None


def describe_type(annotation: Any, key: str) -> str:
    """Describe in words the values that an annotation allows."""
    if get_origin(annotation) in (Union, UnionType):
        kinds = sorted(get_args(annotation), key=lambda kind: kind is NoneType)  # null comes last
        return " or ".join(describe_type(kind, key) for kind in kinds if _is_known(kind))
    if annotation in (None, NoneType):
        return "null"
    if annotation in SCALAR_WORDS:
        return SCALAR_WORDS[annotation]
    origin = get_origin(annotation)
    if origin is Literal:
        return f"one of {', '.join(map(str, get_args(annotation)))}"
    if origin is Callable:
        return "a part that can be called (a class with _partial_: true)"
    if _is_ours(annotation):
        return f"a part, chosen with {key}=..."
    kind = origin or annotation
    if isinstance(kind, type) and issubclass(kind, Mapping):
        return "a mapping"
    return f"a list{_of(annotation)}"


def _of(annotation: Any) -> str:
    texts = " of texts"
    plural = {int: " of whole numbers", float: " of numbers", str: texts, str | None: f"{texts} or null"}
    kinds = [kind for kind in get_args(annotation) if kind is not Ellipsis]
    return plural.get(kinds[0], "") if len(set(kinds)) == 1 else f" of {len(kinds)}" * (len(kinds) > 1)


# Argument types: a part's setting must fit the part's signature: a number, a list, another part.
#
# Unchecked, ``flase`` would count as true, and comparing a word with a number would raise an obscure error.


# What Hydra reads in a part besides its arguments.
HYDRA_KEYS: dict[str, Any] = {
    "_target_": str,
    "_partial_": bool,
    "_recursive_": bool,
    "_args_": list[Any],
    "_convert_": Literal["none", "partial", "object", "all"],
}
MAX_VALUE_LENGTH = 80  # characters of a value in a line


def find_wrong_types(node: Any, arguments: Collection[str] = ()) -> Iterator[str]:
    """Yield a line for each setting of the wrong type, in a part and the parts nested in it.

    ``arguments`` are arguments that do not come from settings: the part's own, and those that it passes to a
    nested ``_partial_`` part.
    """
    if isinstance(node, ListConfig):
        for item in node:
            yield from find_wrong_types(item)
    if not isinstance(node, DictConfig) or node._is_none():
        return
    expected = HYDRA_KEYS | _annotations(str(node.get("_target_"))) if "_target_" in node else {}
    for key in node:
        if OmegaConf.is_missing(node, key) or key in arguments:
            continue
        value = node[key]
        if key in expected and not fits(value, expected[key]):
            name = node._get_full_key(key)
            meant = option_of(value, name) if isinstance(value, str) else None
            hint = f"; did you mean {meant}?" if meant else ""
            yield out_of_range(name, value, describe_type(expected[key], str(key))) + hint
        else:
            is_partial = isinstance(value, DictConfig) and value.get("_partial_", False)
            yield from find_wrong_types(value, arguments if is_partial else ())


def out_of_range(name: str, value: object, expected: str) -> str:
    """Return the message that refuses a value."""
    text = "null" if value is None else str(value)
    if len(text) > MAX_VALUE_LENGTH:
        text = f"{text[:MAX_VALUE_LENGTH]}..."
    return f"{name}={text} is out of range: expected {expected}"


@cache
def _annotations(target: str) -> dict[str, Any]:
    """Return the types of a class' arguments; without an annotation, the default's type or null."""
    arguments = _arguments(target) or {}
    plain = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    return {name: _annotation(argument) for name, argument in arguments.items() if argument.kind in plain}


def takes_argument(target: str, name: str) -> bool:
    """Say whether a class has this argument; true if it takes any, or has no signature."""
    arguments = _arguments(target)
    if arguments is None:
        return True
    anything = any(argument.kind is Parameter.VAR_KEYWORD for argument in arguments.values())
    return anything or name in arguments


def _arguments(target: str) -> Mapping[str, Parameter] | None:
    try:
        module, _, name = target.rpartition(".")
        return signature(getattr(import_module(module), name), eval_str=True).parameters
    except Exception:  # no such class, or no signature: building it reports this
        return None


def _annotation(argument: Parameter) -> Any:
    if isinstance(argument.annotation, str):  # a name imported only under TYPE_CHECKING
        return Any
    if argument.annotation is not Parameter.empty:
        kinds = (argument.annotation, None) if argument.default is None else (argument.annotation,)
        return Union[kinds]  # noqa: UP007 (an annotation may be of any type)
    default = type(argument.default)
    if default in (bool, int, float):
        return (bool if default is bool else float) | None
    if default is tuple and all(type(item) in (int, float) for item in argument.default):
        return list[float] | None
    return Any


SPLITS = ("test", "validation", "node-test", "train")  # that an objective may name
GROUPS = {  # what every run builds, and its required class
    "strategy": "flwr.serverapp.strategy.Strategy",
    "client": "clients.LocalTraining",
    "model": "torch.nn.Module",
    "partitioner": "baselines.partitioners.Partitioner",
    "runtime": "baselines.experiment.validation.Runtime",
    "dataset.load": "baselines.datasets.Dataset",
}
MAX_THREADS = 1024
MIN_FLOAT32, MAX_FLOAT32 = (
    1.1754943508222875e-38,
    3.4028234663852886e38,
)  # the range of float32, apart from 0
POSITIVE_WHOLE = "a whole number above 0"


@runtime_checkable
class Runtime(Protocol):
    """Launches the nodes of a run."""

    def run(self, overrides: str, num_nodes: int, folder: Path) -> None:
        """Run one experiment and write its results into ``folder``."""


@runtime_checkable
class Logger(Protocol):
    """A further destination of a run's metrics, besides metrics.csv."""

    def __init_subclass__(cls, **settings: Any) -> None:
        """Name misspelt hooks: a protocol's own methods do nothing."""
        super().__init_subclass__(**settings)
        warn_of_misspelt_hooks(cls)

    def begin(self, experiment: Any, folder: Path, last_round: int | None) -> None:
        """Start for an experiment; ``last_round`` is the checkpoint's, None in a new run."""

    def write(self, server_round: int, metrics: dict[str, float]) -> None:
        """Log the metrics of a round by name."""

    def end(self, status: str) -> None:
        """Stop; ``status`` is that of environment.json."""


def check_ranges(cfg: DictConfig) -> None:
    """Refuse a setting without a value, a group without a class, and a value out of range.

    Raises
    ------
    UserError : in one line that names the setting
    """
    for key, kind in NESTED_SETTINGS.items():
        names, group = [field.name for field in fields(kind)], cfg[key]
        whole = isinstance(group, DictConfig) and sorted(map(str, group)) == sorted(names)
        _require(whole, cfg, key, " and ".join(f"{key}.{name}" for name in names))
    _check_complete(cfg)
    _check_numbers(cfg)
    _check_groups(cfg)
    for key in ("rounds", "num_nodes", "threads", "evaluate_every", "checkpoint_keep"):
        _require(_is_whole(cfg[key]) and cfg[key] >= 1, cfg, key, POSITIVE_WHOLE)
    _require(cfg.threads <= MAX_THREADS, cfg, "threads", f"at most {MAX_THREADS}")
    counted = cfg.count_bytes
    whether = type(counted) is bool or counted == "compressed"
    _require(whether, cfg, "count_bytes", "true, false or compressed")
    _require(type(cfg.debug) is bool, cfg, "debug", "true or false")
    _require(cfg.resume is None or type(cfg.resume) is bool, cfg, "resume", "true, false or null")
    _require(cfg.save in (None, "last", "best"), cfg, "save", "last, best or null")
    for key in ("per_class", "per_node", "node_spread"):
        _require(type(cfg.evaluation[key]) is bool, cfg.evaluation, key, "true or false")
    spread = cfg.evaluation.node_spread and not cfg.node_test_fraction
    _require(not spread, cfg.evaluation, "node_spread", "false where node_test_fraction=0: no node tests")
    fraction, timeout, share = cfg.node_test_fraction, cfg.timeout, cfg.device_memory_share
    _require(_is_number(fraction) and 0 <= fraction < 1, cfg, "node_test_fraction", "in [0, 1)")
    _require(_is_number(share) and 0 <= share <= 1, cfg, "device_memory_share", "in [0, 1]")
    for key in ("seed", "checkpoint_every", "validation_size"):
        _require(_is_whole(cfg[key]) and cfg[key] >= 0, cfg, key, "a whole number, 0 or above")
    _require(_is_number(timeout) and timeout > 0, cfg, "timeout", "seconds, above 0")
    inputs, expected = cfg.server_inputs, "an option of dataset=, or null"
    _require(inputs is None or str(inputs).isidentifier(), cfg, "server_inputs", expected)
    _require(cfg.central_test in ("all", "none"), cfg, "central_test", "all or none")
    _check_quorum(cfg)
    for key in ("device", "data_root"):
        _require(type(cfg[key]) is str, cfg, key, "a text")
    _require(not cfg.device.startswith("meta"), cfg, "device", DEVICES)  # meta tensors hold no numbers
    _check_data(cfg.dataset)
    stopping = cfg.early_stopping
    if stopping.patience is not None:
        whole = _is_whole(stopping.patience) and stopping.patience >= 1
        _require(whole, stopping, "patience", f"{POSITIVE_WHOLE}, or null")
        _check_measured(cfg, "early_stopping.metric", stopping.metric)
    _check_measured(cfg, "objective", cfg.objective)


def _check_measured(cfg: DictConfig, key: str, name: object) -> None:
    """Refuse a name that is not a metric's, and a split without examples."""
    split, _, metric = str(name).partition("/")
    if split not in SPLITS or not metric:
        raise UserError(f"{key}={name} is unknown: expected split/metric, e.g. test/accuracy")
    for needed, size in (("validation", "validation_size"), ("node-test", "node_test_fraction")):
        if split == needed and not cfg[size]:
            raise UserError(f"{key}={name} with {size}=0: nothing is measured there; set {size} above 0")


def _check_quorum(cfg: DictConfig) -> None:
    """Refuse a quorum without a deadline, a deadline without a quorum, and unreachable values."""
    quorum, deadline = cfg.quorum, cfg.round_deadline
    if quorum is None and deadline is None:
        return
    if quorum is None or deadline is None:
        raise UserError(f"quorum={quorum} and round_deadline={deadline}: set both, or none")
    requested = cfg.num_nodes if cfg.nodes_per_round is None else cfg.nodes_per_round
    if not _is_whole(requested):
        return  # the strategy refuses it
    _require(
        _is_whole(quorum) and 1 <= quorum <= requested,
        cfg,
        "quorum",
        f"a whole number from 1 to {requested}",
    )
    within = _is_number(deadline) and 0 < deadline < cfg.timeout
    _require(within, cfg, "round_deadline", f"seconds, above 0 and below timeout={cfg.timeout}")


def _require(valid: bool, cfg: DictConfig, key: str, expected: str) -> None:
    if not valid:
        raise UserError(out_of_range(cfg._get_full_key(key), cfg[key], expected))


def _is_whole(value: Any) -> bool:
    return type(value) is int


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _check_complete(cfg: DictConfig) -> None:
    """Refuse a setting without a value, or with a reference to a missing one."""
    try:
        missing = OmegaConf.missing_keys(cfg)
        OmegaConf.to_container(cfg, resolve=True)
    except OmegaConfBaseException as error:
        raise describe_unresolved(error) from error
    for key in sorted(missing):
        raise UserError(f"{key}=??? has no value: set {key}=...")


def _check_numbers(node: Any) -> None:
    """Refuse a number that becomes infinite or 0 in float32, in which models are trained."""
    keys: Any = node.keys() if isinstance(node, DictConfig) else range(len(node))
    for key in keys:
        value = node[key]
        if OmegaConf.is_config(value):
            _check_numbers(value)
        elif (
            _is_number(value) and 0 < abs(value) < math.inf and not MIN_FLOAT32 <= abs(value) <= MAX_FLOAT32
        ):
            held = f"a number that float32 holds: 0, or {MIN_FLOAT32:.2g} to {MAX_FLOAT32:.2g} in size"
            raise UserError(out_of_range(node._get_full_key(key), value, held))


def _check_groups(cfg: DictConfig) -> None:
    """Refuse a group that names no class, or one of another kind."""
    for key, kind in GROUPS.items():
        group, name = OmegaConf.select(cfg, key), key.partition(".")[0]
        if not is_part(group, None):
            raise UserError(f"{key} has no _target_, the class to build: choose an option, {name}=...")
        if not is_part(group, find_object(kind)):
            what = kind.rpartition(".")[2]
            raise UserError(
                f"{key}._target_={group._target_} is not a {what}: choose an option, {name}=..."
            )
    for name, logger in (cfg.get("logger") or {}).items():
        if not is_part(logger, None):
            raise UserError(f"logger.{name} has no _target_, the class to build: choose logger=...")
        if not is_part(logger, Logger):
            raise UserError(f"logger.{name}._target_={logger._target_} is not a Logger: choose logger=...")


def _check_data(dataset: DictConfig) -> None:
    """Refuse an impossible shape or number of classes; null is taken from the data."""
    classes, shape = dataset.get("num_classes"), dataset.get("shape")
    known = classes is None or (_is_whole(classes) and classes >= 1)
    _require(known, dataset, "num_classes", f"{POSITIVE_WHOLE}, or null")
    whole = OmegaConf.is_list(shape) and len(shape) > 0 and all(_is_whole(n) and n >= 1 for n in shape)
    _require(shape is None or whole, dataset, "shape", "a list of whole numbers above 0, or null")
