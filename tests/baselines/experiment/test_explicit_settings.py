"""What somebody sets is what is built, or is refused in one line: nothing replaces it on the way.

Walks over every setting of every option in conf/, gives it values other than its default, and has the
experiment build what reads it. The data sets are stand-ins: most are not on this machine.
"""

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from functools import cache, partial
from itertools import count
from typing import Any, cast

import pytest
import torch
from omegaconf import DictConfig, OmegaConf

from baselines.datasets import Dataset
from baselines.errors import UserError
from baselines.experiment import config, data
from baselines.experiment.experiment import Experiment
from baselines.experiment.preflight import check_model
from baselines.experiment.validation import NESTED, check_ranges
from clients import Classification
from helpers.fuzz.conf_tree import GROUPS, options, settings_of, top_level

OF_STRATEGY = {
    *("weighting", "server_optimizer", "mask", "step_size", "aggregation", "privacy", "compression"),
    "grouping",
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
    "strategy=selective": "validation_size=50",
    "strategy=fedmeta": "validation_size=50",
    "dataset=hub": "dataset.name=/nowhere",
    "dataset=local": "dataset.schema=/nowhere",
    "model": HUB,  # which leaves to the data what it does not know
    "model=linear": "dataset=synthetic",
    "model=char_lstm": "dataset=speech",
}
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
    "strategy.option": {"strategy.option": 1},
    "weighting.requester": {"weighting.requester": 3},
    "dataset.shape": {"dataset.shape": [7]},
}
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


def others(key: str, value: Any) -> list[dict[str, Any]]:
    """Return settings in which a key has another value than its default."""
    return [OTHER[key]] if key in OTHER else [{key: other} for other in plain_others(value)]


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
    return config.composed_unchecked(f"{option} {WITH.get(option, WITH.get(group, ''))}".strip()).cfg


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
        file = {(key, value) for key, value in settings_of(group, option).items() if not is_listed(value)}
        if file <= in_files:  # composing takes longer than the rest
            continue
        in_files |= file
        of_any_class = group in ("strategy", "client")
        own = settings(f"{group}={option}")
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
        patch.setattr(data, "loaded", data.loaded.__wrapped__)
        check_ranges(cfg)
        name = f"++explicit={next(NAMES)}"
        config.take(name, OmegaConf.to_yaml(cfg))
        self.experiment = this = Experiment(name)
        if group in ("dataset", "model"):
            _ = this.dataset, this.model()
        if group in OF_STRATEGY | {"strategy"}:
            this.strategy()
        if group in {"client", *OF_CLIENT}:
            _ = this.training
        if group in ("partitioner", "runtime", "logger"):
            _ = this.partitioner, this.runtime(), this.loggers()

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


@pytest.mark.exhaustive
@pytest.mark.parametrize("group", GROUPS)
def test_a_setting_wins_or_is_refused(group: str) -> None:
    for option, own in not_yet(group):
        for key, default in own.items():
            tried = ((given, built(composed(option), group, given)) for given in others(key, default))
            given, found = next(((given, found) for given, found in tried if found), ({}, None))
            assert found or key in PARTS, f"{option}: {key} takes none of {others(key, default)}"
            assert not found or key in UNREAD or found.has(key, given[key]), f"{option}: {given}"


READ_OTHERWISE = {  # by what, besides an experiment's Settings and its strategy
    "autocast": "the model",
    "channels_last": "the model",
    "deterministic": "the experiment",
    "data_root": "dataset.load",
    "debug": "run",
    "objective": "run",
    "save": "run",
    "checkpoint_keep": "run",
}


@pytest.mark.slow
def test_a_setting_of_no_group_reaches_the_run_or_is_refused() -> None:
    cfg = composed("strategy=fedavg")
    plain = {key: value for key, value in top_level().items() if not isinstance(value, dict)}
    nested = {key: value for key, value in top_level().items() if isinstance(value, dict)}
    plain |= {f"{key}.{name}": one for key, value in nested.items() for name, one in value.items()}
    for key, default in plain.items():
        group, _, name = key.rpartition(".")
        for given in others(key, default):
            found = built(cfg, "strategy", given)
            if found is None or key in READ_OTHERWISE:
                continue
            settings = found.experiment.settings
            read = [getattr(found.made["strategy"], name, None)]
            read += [getattr(getattr(settings, group) if group in NESTED else settings, name, None)]
            assert any(same(given[key], one) for one in read), key


def outputs(overrides: str, classes: int) -> torch.Size:
    """Return the shape of the last layer that a model has for data of so many classes, once it is sound."""
    labels = torch.arange(60) % classes
    inputs = torch.rand(60, 1, 8, 8)
    pictures = Dataset(inputs, labels, inputs, labels, Classification(), num_classes=classes)
    this = Experiment(f"{HUB} num_nodes=3 partitioner=iid {overrides}", pictures)
    check_model(this)
    return this.model().state_dict()["out.weight"].shape


def test_a_models_classes_win_over_those_of_the_data() -> None:
    assert outputs("model=mlp", 3) == (3, 64)
    assert outputs("model=mlp model.num_classes=50", 3) == (50, 64)
    assert outputs("model=mlp dataset.num_classes=5", 3) == (5, 64)
    with pytest.raises(UserError, match=r"train_targets are 0 to 2, .* and the model has 2 classes"):
        outputs("model=mlp model.num_classes=2", 3)


def test_a_models_shape_is_not_replaced_by_that_of_the_data() -> None:
    with pytest.raises(UserError, match=r"does not take the data set's inputs of shape \(1, 8, 8\)"):
        outputs("model=mlp model.input_shape=[1,4,4]", 3)
    assert outputs("model=mlp model.input_shape=[8,8]", 3) == (3, 64)  # as many pixels


def test_fewer_classes_than_the_sites_schema_has_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    cfg = composed("dataset=local").dataset
    agreed = replace(stand_in(composed("dataset=local")), site=cast(Any, "what each site reads"))
    monkeypatch.setattr(data, "loaded", lambda _: agreed)
    for enough in (None, 3, 5):
        assert data.dataset_of(changed(cfg, {"num_classes": enough})) is agreed
    with pytest.raises(UserError, match=r"dataset\.num_classes=2, but the schema has 3 classes"):
        data.dataset_of(changed(cfg, {"num_classes": 2}))
