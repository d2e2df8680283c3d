"""What somebody sets is what is built, or is refused in one line: nothing replaces it on the way.

Walks over every setting of every option in conf/, gives it values other than its default, and has the
experiment build what reads it. The data sets are stand-ins: most are not on this machine.
"""

from dataclasses import replace
from typing import Any, cast

import pytest
import torch

from baselines.datasets import Dataset
from baselines.errors import UserError
from baselines.experiment import data
from baselines.experiment.experiment import Experiment
from baselines.experiment.preflight import check_model
from baselines.experiment.validation import NESTED_SETTINGS, takes_argument
from clients import Classification
from helpers.fuzz.conf_tree import GROUPS, top_level
from helpers.fuzz.explicit_settings import (
    HUB,
    PARTS,
    UNREAD,
    built,
    changed,
    composed,
    not_yet,
    others,
    same,
    stand_in,
)


@pytest.mark.exhaustive
@pytest.mark.parametrize("group", GROUPS)
def test_a_setting_wins_or_is_refused(group: str) -> None:
    for option, own in not_yet(group):
        for key, default in own.items():
            tried = (
                (given, built(composed(option), group, given)) for given in others(key, default, option)
            )
            given, effect = next(((given, effect) for given, effect in tried if effect), ({}, None))
            assert effect or key in PARTS, f"{option}: {key} takes none of {others(key, default)}"
            assert not effect or key in UNREAD or effect.has(key, given[key]), f"{option}: {given}"


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
            actual = built(cfg, "strategy", given)
            if actual is None or key in READ_OTHERWISE:
                continue
            settings = actual.experiment.settings
            read = [getattr(actual.made["strategy"], name, None)]
            read += [
                getattr(getattr(settings, group) if group in NESTED_SETTINGS else settings, name, None)
            ]
            assert any(same(given[key], one) for one in read), key


def outputs(overrides: str, classes: int) -> torch.Size:
    """Return the shape of the last layer that a model has for data of so many classes, once it is sound."""
    labels = torch.arange(60) % classes
    inputs = torch.rand(60, 1, 8, 8)
    pictures = Dataset(inputs, labels, inputs, labels, Classification(), num_classes=classes)
    experiment = Experiment(f"{HUB} num_nodes=3 partitioner=iid {overrides}", pictures)
    check_model(experiment)
    return experiment.model().state_dict()["out.weight"].shape


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
    monkeypatch.setattr(data, "load_dataset", lambda _: agreed)
    for enough in (None, 3, 5):
        assert data.dataset_of(changed(cfg, {"num_classes": enough})) is agreed
    with pytest.raises(UserError, match=r"dataset\.num_classes=2, but the schema has 3 classes"):
        data.dataset_of(changed(cfg, {"num_classes": 2}))


class Plain(torch.nn.Module):
    """A model without arguments."""

    def __init__(self) -> None:
        super().__init__()


def test_a_class_without_arguments_takes_none() -> None:
    assert not takes_argument(f"{__name__}.Plain", "input_shape")
    assert takes_argument("nowhere.at.all", "input_shape")  # who builds it says what is wrong
