"""The data of an experiment, loaded once per process and checked against the configuration."""

from functools import cache

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from torch import Tensor

from baselines.datasets import Dataset
from baselines.errors import UserError
from clients import Classification, LazyRows
from clients.inputs import tensors_of

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
    said, shape = cfg.shape, dataset.input_shape
    if said is not None and shape != list(said):
        raise UserError(
            f"dataset.shape={list(said)}, but the inputs have shape {shape}: correct the data set's "
            "file in conf/dataset"
        )
    if dataset.site is not None:  # no rows here
        agreed = dataset.num_classes
        if None not in (cfg.num_classes, agreed) and cfg.num_classes < agreed:
            raise UserError(
                f"dataset.num_classes={cfg.num_classes}, but the schema has {agreed} classes: leave it out"
            )
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


def check_rows(dataset: Dataset, *, is_tested: bool) -> None:
    """Refuse rows that no model can learn from or be judged on: one pass over what has a fraction.

    Parameters
    ----------
    is_tested : whether the server evaluates on the test set

    Raises
    ------
    UserError : for NaN and infinite values, with their rows; no test rows; labels of a single class
    """
    if dataset.site is not None:
        return
    if is_tested and not len(dataset.test_targets):
        raise UserError(
            "the data set has no test examples: expected one or more, or central_test=none with "
            "node_test_fraction above 0"
        )
    for name in ("train_inputs", "train_targets", "test_inputs", "test_targets"):
        for rows in tensors_of(getattr(dataset, name)):
            _check_finite(name, rows)
    if isinstance(dataset.task, Classification):
        _check_classes([y for y in (dataset.train_targets, dataset.test_targets) if len(y)])


def _check_finite(name: str, rows: Tensor | LazyRows) -> None:
    if isinstance(rows, LazyRows) or not rows.is_floating_point() or not rows.numel():
        return
    if all(end.isfinite() for end in rows.aminmax()):  # which take no memory, and pass a NaN on
        return
    bad = (~rows.isfinite()).flatten(1).any(1) if rows.ndim > 1 else ~rows.isfinite()
    places = bad.nonzero().flatten().tolist()
    raise UserError(
        f"the data set's {name} have NaN or infinite values in {len(places)} rows, e.g. {places[:5]}, "
        "counted from 0: fill or remove them"
    )


def _check_classes(parts: list[Tensor]) -> None:
    lowest, highest = (min(int(y.min()) for y in parts), max(int(y.max()) for y in parts))
    if lowest == highest:
        raise UserError(
            f"the data set's labels are all {lowest}: expected two classes or more; are they the labels?"
        )
