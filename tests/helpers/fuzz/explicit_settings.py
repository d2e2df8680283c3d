"""What somebody sets is what is built, or is refused: how an option is built, and what it then has.

Settings of every option in conf/ are given values other than their defaults, drawn or listed. The data sets
are stand-ins: most are not on this machine.
"""

from collections.abc import Iterator
from copy import deepcopy
from functools import cache, partial
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
import torch
from omegaconf import DictConfig, OmegaConf

from baselines.datasets import Dataset
from baselines.errors import UserError
from baselines.experiment import config, data
from baselines.experiment.experiment import Experiment
from baselines.experiment.validation import check_ranges
from clients import Classification
from helpers.fuzz.conf_tree import GROUPS, options, settings_of
from helpers.fuzz.verdict import Result

OF_STRATEGY = {
    *("weighting", "server_optimizer", "mask", "step_size", "aggregation", "privacy", "compression"),
    *("grouping", "staleness"),
}
OF_CLIENT = {name: f"client.{name}" for name in ("corrections", "schedule", "personal", "private")}
OF_CLIENT["client_optimizer"] = "client.optimizer"
HUB = "dataset=hub dataset.name=/nowhere"
WITH = {  # what an option, or a group, takes to be built
    "weighting=each_requester": "strategy=weight_erosion_all",
    "weighting=erosion": "weighting.requester=0",
    "privacy=central": "weighting=uniform",
    "privacy=adaptive": "weighting=uniform",
    "privacy=local": "weighting=uniform",
    "grouping": "strategy=selective validation_size=50",
    "staleness": "strategy=fedbuff",
    "clock=trace": "clock.path=/nowhere",
    "strategy=selective": "validation_size=50",
    "strategy=fedmeta": "validation_size=50",
    "strategy=feddf": "validation_size=50",
    "strategy=codistillation": "validation_size=50",
    "dataset=hub": "dataset.name=/nowhere",
    "dataset=local": "dataset.schema=/nowhere",
    "model": HUB,  # which leaves to the data what it does not know
    "model=linear": "dataset=synthetic",
    "model=char_lstm": "dataset=speech",
    "model=causal_transformer": "dataset=speech",
    "model=transformer": "dataset=text dataset.name=/nowhere",
    "model=lora": "dataset=text dataset.name=/nowhere",
    "model=huggingface": "dataset=text dataset.name=/nowhere",
}
OF_EXTRAS = ("model=lora", "model=huggingface")  # whose packages may be missing: built in their own tests
WORDS = {
    "improved": "initial",
    "layer": "model",
    "mean": "in",
    "auto": True,
    "staged": "installed",
    "B": "C",
    "float32": "float64",
    "float64": "float32",
    "byclass": "digits",
    "all": "none",
    "test/accuracy": "test/loss",
    "validation/accuracy": "test/loss",
}
OTHER: dict[str, dict[str, Any]] = {  # settings that want a certain value, or another setting beside it
    "client.local_steps": {"client.local_steps": 3, "client.local_epochs": None},
    "client.stragglers": {"client.stragglers": 0.5, "client.local_epochs": 3},
    "compression.rotate": {"compression.rotate": True, "compression.bits": 4},
    "model.groups": {"model.groups": 4},
    "model.input_shape": {"model.input_shape": [3, 28, 28]},
    "privacy.stop_at_epsilon": {"privacy.stop_at_epsilon": 50.0},
    "runtime.authenticate": {"runtime.authenticate": True, "runtime.tls": True},
    "strategy.loss_examples": {"strategy.loss_examples": 3, "strategy.asks": True},
    "strategy.option": {"strategy.option": 1},
    "weighting.requester": {"weighting.requester": 3},
    "dataset.shape": {"dataset.shape": [7]},
    "partitioner.group_share": {"partitioner.group_share": 0.2},
}
OF_TEXTS = {
    "model.input_shape": {"model.input_shape": [7]},
    "model.width": {"model.width": 32},
    "model.heads": {"model.heads": 2},
}
OTHER_OF = {"model=causal_transformer": OF_TEXTS, "model=transformer": OF_TEXTS}  # the same, of one option
ONLY_DEFAULT = {"strategy=codistillation": ["strategy.inner.average_last"]}  # any other value is refused
PARTS = ("client.personal", "dataset.load.augment", "runtime.sites")  # no plain value will do
UNREAD = {  # and why that is right
    "dataset.classes.digits": "the classes of a split that is not chosen",
    "dataset.num_classes": "of data without classes",
}
NAMES = count()


def leaves(node: DictConfig, prefix: str) -> Iterator[tuple[str, str, Any]]:
    """Yield what a node sets itself: key, class and value; what refers to another group is set there."""
    for key in map(str, node):
        name, value = f"{prefix}.{key}", node[key]
        if isinstance(value, DictConfig):
            if not OmegaConf.is_interpolation(node, key):
                yield from leaves(value, name)
        elif not key.startswith("_"):
            plain = OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
            yield name, str(node.get("_target_")), plain


def others(key: str, value: Any, option: str = "") -> list[dict[str, Any]]:
    """Return settings in which a key of an option has another value than its default."""
    wanted = OTHER | OTHER_OF.get(option, {})
    return [wanted[key]] if key in wanted else [{key: other} for other in plain_others(value)]


def plain_others(value: Any) -> list[Any]:
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int | float):
        return [value + 1, value / 2 + 0.01]
    if isinstance(value, str):
        return [WORDS.get(value, f"{value}x")]
    if isinstance(value, list):
        return [[plain_others(item)[0] for item in value] or ["fc1.*"]]
    return [3, 0.5, "word", [5, 7]]


@cache
def composed(option: str) -> DictConfig:
    group = option.partition("=")[0]
    return config.compose_unchecked(f"{option} {WITH.get(option, WITH.get(group, ''))}".strip()).cfg


def settings(option: str) -> dict[str, tuple[str, Any]]:
    """Return the settings of an option by key: the class that they are of, and their default."""
    group, cfg = option.partition("=")[0], composed(option)
    place = OF_CLIENT.get(group, group)
    node = OmegaConf.select(cfg, place)
    if isinstance(node, DictConfig):
        return {key: (target, value) for key, target, value in leaves(node, place)}
    return {place: ("", ["last"])} if group == "private" and node else {}


def not_yet(group: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield options, each with those of its settings that no option before has of the same class."""
    in_files, tried = set[tuple[str, Any]](), set[tuple[str, str]]()
    for option in options(group):
        if f"{group}={option}" in OF_EXTRAS:
            continue
        file = {(key, value) for key, value in settings_of(group, option).items() if not is_listed(value)}
        if file <= in_files:  # composing takes longer than the rest
            continue
        in_files |= file
        of_any_class = group in ("strategy", "client")
        own = settings(f"{group}={option}")
        own = {key: own[key] for key in own if key not in ONLY_DEFAULT.get(f"{group}={option}", ())}
        marks = {key: (key, "" if of_any_class else target) for key, (target, _) in own.items()}
        yield f"{group}={option}", {key: own[key][1] for key in own if marks[key] not in tried}
        tried.update(marks.values())


def is_listed(value: object) -> bool:
    return isinstance(value, dict | list)


class Built:
    """What reads a group's settings, and with what arguments it was built.

    Attributes
    ----------
    given : {group: settings as they reach the class}
    made : {group: object}
    """

    def __init__(self, cfg: DictConfig, group: str, patch: pytest.MonkeyPatch) -> None:
        self.given: dict[str, Any] = {}
        self.made: dict[str, Any] = {}
        real = config.instantiate

        def recorded(node: Any, **arguments: Any) -> Any:
            key = node._get_full_key(None).split(".")[0] if node else "none"
            self.given[key] = (OmegaConf.to_container(node, resolve=True) if node else {}) | arguments
            self.made[key] = stand_in(cfg) if key == "dataset" else real(node, **arguments)
            return self.made[key]

        patch.setattr(config, "instantiate", recorded)
        patch.setattr(data, "load_dataset", data.load_dataset.__wrapped__)
        check_ranges(cfg)
        name = f"++explicit={next(NAMES)}"
        config.register_composed(name, OmegaConf.to_yaml(cfg))
        self.experiment = experiment = Experiment(name)
        if group in ("dataset", "model"):
            _ = experiment.dataset, experiment.model()
        if group in OF_STRATEGY | {"strategy"}:
            experiment.strategy()
        if group in {"client", *OF_CLIENT}:
            _ = experiment.training
        if group == "clock":
            _ = experiment.clock
        if group in ("partitioner", "runtime", "logger"):
            _ = experiment.partitioner, experiment.runtime(), experiment.loggers()

    def has(self, key: str, value: Any) -> bool:
        """Say whether what was built has the value that was set."""
        group, _, rest = key.partition(".")
        if group in OF_STRATEGY:
            inner = "inner" in self.given["strategy"] and group != "grouping"
            group, rest = "strategy", f"{'inner.' * inner}{key}"
        if group == "dataset" and not rest.startswith("load."):
            return any(same(value, one) for one in values([self.given["dataset"], self.given["model"]]))
        given, made = self.given[group], self.made[group]
        for name in rest.removeprefix("load.").split("."):
            given, made = given[name], attribute(made, name)
        is_kept = made is not None and group not in ("dataset", "model")  # whose classes keep nothing so
        return same(value, given) and (not is_kept or same(value, made))


def stand_in(cfg: DictConfig) -> Dataset:
    """Return data as the configuration describes them, or images in 3 classes."""
    shape, classes = cfg.dataset.shape or (1, 28, 28), cfg.dataset.num_classes or 3
    inputs, labels = torch.zeros(60, *shape), torch.arange(60) % classes
    return Dataset(inputs, labels, inputs, labels, Classification(), num_classes=classes)


def attribute(made: object, name: str) -> Any:
    """Return what an object has under the name of its argument; None where it keeps it otherwise."""
    if isinstance(made, partial):
        return made.keywords[name]
    return made[name] if isinstance(made, dict) else getattr(made, name, None)


def values(node: Any) -> Iterator[Any]:
    """Yield all values within nested settings."""
    yield node
    for item in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from values(item)


def same(value: Any, built: Any) -> bool:
    plain = list(built) if isinstance(built, tuple) else built
    return bool(plain == value) and isinstance(plain, bool) == isinstance(value, bool)


def changed(cfg: DictConfig, values: dict[str, Any]) -> DictConfig:
    cfg = deepcopy(cfg)
    for key, value in values.items():
        OmegaConf.update(cfg, key, value, merge=False)
    return cfg


def built(cfg: DictConfig, group: str, given: dict[str, Any]) -> Built | None:
    """Build what reads these settings; None where they are refused in one line."""
    with pytest.MonkeyPatch.context() as patch:
        try:
            return Built(changed(cfg, given), group, patch)
        except UserError as error:
            lines = str(error).splitlines()
    assert len(lines) == 1
    return None


class Explicit(NamedTuple):
    """A setting of an option that is given another value."""

    option: str
    key: str
    value: Any
    given: dict[str, Any]  # with what it wants beside it


def draw(random: Random) -> Explicit:
    """Return any setting of any option with a value that is not its default."""
    while True:
        group = random.choice(GROUPS)
        option = f"{group}={random.choice(options(group))}"
        unset = (*PARTS, *ONLY_DEFAULT.get(option, ()))
        own = {key: default for key, (_, default) in settings(option).items() if key not in unset}
        if own:
            break
    key = random.choice([*own])
    given = random.choice(
        [*others(key, own[key], option), *({key: value} for value in _numbers(random, own[key]))]
    )
    return Explicit(option, key, given[key], given)


def _numbers(random: Random, default: Any) -> list[Any]:
    if isinstance(default, bool) or not isinstance(default, int | float):
        return []
    drawn = [random.uniform(0, 1), random.uniform(0, 4 * abs(default) + 1), 10.0 ** random.randint(-5, 5)]
    return [round(value) for value in drawn] if isinstance(default, int) else drawn


def try_one(random: Random, folder: Path, repeat: str) -> Result:
    """Build an option with a setting; judge whether it has it."""
    option, key, value, given = draw(random)
    if value == settings(option)[key][1]:
        return Result("the default again", "", repeat)
    try:
        with pytest.MonkeyPatch.context() as patch:
            made = Built(changed(composed(option), given), option.partition("=")[0], patch)
    except (UserError, ValueError) as error:
        is_line = "\n" not in str(error)
        return Result("refused in one line", "" if is_line else f"{option}: {key}: {error}", repeat)
    except Exception as error:  # what a person would see as a traceback
        return Result("", f"{option}: {given}: {type(error).__name__}: {error}", repeat)
    replaced = key not in UNREAD and not made.has(key, value)
    return Result("built with it", f"{option}: {given} is replaced" if replaced else "", repeat)
