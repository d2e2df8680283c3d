"""Ranges of the settings that belong to no part: what nothing else would refuse."""

import math
from dataclasses import fields
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from baselines.errors import UserError

from . import settings
from .annotations import found, is_part
from .argument_types import out_of_range

SPLITS = ("test", "validation", "node-test", "train")  # whose metrics a run writes
GROUPS = {  # what every run builds, and of which kind it must be
    "strategy": "flwr.serverapp.strategy.Strategy",
    "client": "clients.LocalTraining",
    "model": "torch.nn.Module",
    "partitioner": "baselines.partitioners.Partitioner",
    "runtime": "baselines.experiment.ranges.Runtime",
    "dataset.load": "baselines.datasets.Dataset",
}
MOST_THREADS = 1024
LEAST, MOST = 1.1754943508222875e-38, 3.4028234663852886e38  # of float32, but for 0
ABOVE_0 = "a whole number above 0"


@runtime_checkable
class Runtime(Protocol):
    """What launches the nodes of a run."""

    def run(self, overrides: str, num_nodes: int, folder: Path) -> None:
        """Run one experiment and write its results into ``folder``."""


@runtime_checkable
class Logger(Protocol):
    """Somewhere that a run's metrics go, besides metrics.csv."""

    def begin(self, this: Any, folder: Path, last_round: int | None) -> None:
        """Start for an experiment; ``last_round`` is the checkpoint's, None in a new run."""

    def write(self, server_round: int, metrics: dict[str, float]) -> None:
        """Log the metrics of a round by name."""

    def end(self, status: str) -> None:
        """Stop; ``status`` is that of environment.json."""


def check(cfg: DictConfig) -> None:
    """Refuse a setting without a value, a group that is no part, and a value out of range.

    Raises
    ------
    UserError : in one line that names the setting
    """
    for key, kind in settings.GROUPS.items():
        names, group = [field.name for field in fields(kind)], cfg[key]
        whole = isinstance(group, DictConfig) and sorted(map(str, group)) == sorted(names)
        _require(whole, cfg, key, " and ".join(f"{key}.{name}" for name in names))
    _check_complete(cfg)
    _check_numbers(cfg)
    _check_groups(cfg)
    for key in ("rounds", "num_nodes", "threads", "evaluate_every", "checkpoint_keep"):
        _require(_is_whole(cfg[key]) and cfg[key] >= 1, cfg, key, ABOVE_0)
    _require(cfg.threads <= MOST_THREADS, cfg, "threads", f"at most {MOST_THREADS}")
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
    _require(cfg.central_test in ("all", "none"), cfg, "central_test", "all or none")
    _check_quorum(cfg)
    for key in ("device", "data_root"):
        _require(type(cfg[key]) is str, cfg, key, "a text")
    _require(not cfg.device.startswith("meta"), cfg, "device", settings.DEVICES)  # it holds no numbers
    _check_data(cfg.dataset)
    stopping = cfg.early_stopping
    if stopping.patience is not None:
        whole = _is_whole(stopping.patience) and stopping.patience >= 1
        _require(whole, stopping, "patience", f"{ABOVE_0}, or null")
        _check_measured(cfg, "early_stopping.metric", stopping.metric)
    _check_measured(cfg, "objective", cfg.objective)


def _check_measured(cfg: DictConfig, key: str, name: object) -> None:
    """Refuse the name of no metric, and a split without examples."""
    split, _, metric = str(name).partition("/")
    if split not in SPLITS or not metric:
        raise UserError(f"{key}={name} is unknown: expected split/metric, e.g. test/accuracy")
    for needed, size in (("validation", "validation_size"), ("node-test", "node_test_fraction")):
        if split == needed and not cfg[size]:
            raise UserError(f"{key}={name} with {size}=0: nothing is measured there; set {size} above 0")


def _check_quorum(cfg: DictConfig) -> None:
    """Refuse a quorum without a deadline, or the other way round, and what could never come to pass."""
    quorum, deadline = cfg.quorum, cfg.round_deadline
    if quorum is None and deadline is None:
        return
    if quorum is None or deadline is None:
        raise UserError(f"quorum={quorum} and round_deadline={deadline}: set both, or none")
    asked = cfg.num_nodes if cfg.nodes_per_round is None else cfg.nodes_per_round
    if not _is_whole(asked):
        return  # which the strategy refuses
    _require(_is_whole(quorum) and 1 <= quorum <= asked, cfg, "quorum", f"a whole number from 1 to {asked}")
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
    """Refuse what has no value, or names another that is not there."""
    try:
        missing = OmegaConf.missing_keys(cfg)
        OmegaConf.to_container(cfg, resolve=True)
    except OmegaConfBaseException as error:
        raise unresolved(error) from error
    for key in sorted(missing):
        raise UserError(f"{key}=??? has no value: set {key}=...")


def _check_numbers(node: Any) -> None:
    """Refuse a number that float32, in which models are trained, would make infinite or 0."""
    keys: Any = node.keys() if isinstance(node, DictConfig) else range(len(node))
    for key in keys:
        value = node[key]
        if OmegaConf.is_config(value):
            _check_numbers(value)
        elif _is_number(value) and 0 < abs(value) < math.inf and not LEAST <= abs(value) <= MOST:
            held = f"a number that float32 holds: 0, or {LEAST:.2g} to {MOST:.2g} in size"
            raise UserError(out_of_range(node._get_full_key(key), value, held))


def unresolved(error: OmegaConfBaseException) -> UserError:
    """Return in one line what OmegaConf says in three of a value that names another."""
    first = str(error).splitlines()[0]
    return UserError(f"{error.full_key} cannot be read: {first}" if error.full_key else first)


def _check_groups(cfg: DictConfig) -> None:
    """Refuse a group that names nothing to build, or something of another kind."""
    for key, kind in GROUPS.items():
        group, name = OmegaConf.select(cfg, key), key.partition(".")[0]
        if not is_part(group, None):
            raise UserError(f"{key} has no _target_, the class to build: choose an option, {name}=...")
        if not is_part(group, found(kind)):
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
    """Refuse a shape and a number of classes that no data have; null is measured."""
    classes, shape = dataset.get("num_classes"), dataset.get("shape")
    known = classes is None or (_is_whole(classes) and classes >= 1)
    _require(known, dataset, "num_classes", f"{ABOVE_0}, or null")
    whole = OmegaConf.is_list(shape) and len(shape) > 0 and all(_is_whole(n) and n >= 1 for n in shape)
    _require(shape is None or whole, dataset, "shape", "a list of whole numbers above 0, or null")
