"""The data of an experiment, loaded once per process and checked against the configuration."""

from functools import cache

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from baselines.datasets import Dataset
from baselines.errors import UserError
from clients import Classification

from . import config


def dataset_of(cfg: DictConfig) -> Dataset:
    """Return the data set that the configuration's group ``dataset`` describes.

    Raises
    ------
    UserError : where the inputs have another shape, or the labels other classes, than it says
    """
    try:
        dataset = loaded(OmegaConf.to_yaml(cfg, resolve=True))
    except OmegaConfBaseException as error:  # a value that has no default, or names another
        raise UserError(str(error)) from error
    said, shape = cfg.shape, list(dataset.train_inputs.shape[1:])
    if said is not None and shape != list(said):
        raise UserError(
            f"dataset.shape={list(said)}, but the inputs have shape {shape}: correct the data set's "
            "file in conf/dataset"
        )
    if dataset.site is not None:  # no rows here
        return dataset
    if not len(dataset.train_targets):
        raise UserError("the data set has no training examples: expected one for each node, or more")
    classes, highest = cfg.num_classes, dataset.train_targets.max()
    if isinstance(dataset.task, Classification) and classes is not None and highest >= classes:
        raise UserError(
            f"dataset.num_classes={classes}, but there are labels up to {int(highest)}: correct it"
        )
    return dataset


@cache
def loaded(yaml: str) -> Dataset:
    """Return the data set that a group's resolved YAML describes.

    Raises
    ------
    UserError : where what it names returns none
    """
    node = OmegaConf.create({"dataset": OmegaConf.create(yaml)})  # so that a setting has its name in errors
    dataset = config.build(node.dataset.load)
    if not isinstance(dataset, Dataset):
        raise UserError(
            f"dataset.load: {node.dataset.load._target_} returned a {type(dataset).__name__}: expected a "
            "Dataset of baselines.datasets"
        )
    return dataset
