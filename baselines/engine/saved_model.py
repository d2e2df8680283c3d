"""Save and load the trained model of a run (model.safetensors).

The metadata hold, as JSON under one key, what is needed to use the weights: ``round``, ``value``, ``model``
and what :func:`describe` returns. Loading runs no code from the file, which is safetensors. But the class
is the one that config.yaml names, any class of this installation: load only runs of people whom you trust.
"""

import contextlib
import json
import logging
import math
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import torch
import yaml  # type: ignore[import-untyped]
from flwr.app import ArrayRecord
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn

from baselines.datasets import Dataset
from baselines.datasets.local import SiteData
from baselines.datasets.tokens import TextEncoder
from baselines.errors import UserError
from baselines.experiment import config
from baselines.experiment.experiment import Experiment
from clients import Classification, Normalize
from clients.examples import apply_to_each
from clients.round import load_arrays
from strategies.shared.checks import has_diverged

from . import checkpoint, environment
from .metrics import by_round

MODEL_FILE = "model.safetensors"
MODELS_FOLDER = "models"  # the folder with one file per model, where a strategy trains several
METADATA_KEY = "florilegium"  # the only metadata key, with JSON: the order of several keys is random
UNFINISHED_FOLDER = f"{MODELS_FOLDER}.tmp"  # that folder while it is being written
logger = logging.getLogger("flwr")


@dataclass(frozen=True)
class SavedModel:
    """A trained model, its experiment and its description.

    Parameters
    ----------
    network : takes normalised inputs and returns logits, on the CPU, in evaluation mode
    experiment : the experiment that trained it, built from config.yaml
    description : what :func:`describe` returns, and ``model``, its name; of a model file also ``round``
    """

    network: nn.Module
    experiment: Experiment
    description: dict[str, Any]


def describe(experiment: Experiment) -> dict[str, Any]:
    """Describe an experiment's model, without its weights, as plain values.

    ``identity`` is the run's; ``network`` has the model's configuration, ``input_shape`` and
        ``num_classes``; ``task`` is the name of the task's class. ``inputs`` has the ``dtype`` of raw
    inputs,
        and ``normalize``: raw inputs become (x / scale - mean) / std, or stay unchanged if it is null.
    Where the data set has another transform, ``normalize`` is missing. ``texts`` is the encoder of texts,
    ``schema`` the sites' schema, where there is one.
    """
    dataset = experiment.dataset
    inputs: dict[str, Any] = {"dtype": apply_to_each(_name_dtype, dataset.test_inputs)}
    if dataset.transform is None:
        inputs["normalize"] = None
    elif isinstance(dataset.transform, Normalize):
        normalize = dataset.transform
        mean, std = list(map(float, normalize.mean)), list(map(float, normalize.std))
        inputs["normalize"] = {"mean": mean, "std": std, "scale": float(normalize.scale)}
    if dataset.encoder is not None:
        inputs["texts"] = asdict(dataset.encoder)
    description = {
        "identity": experiment.identity(),
        "network": {
            "config": experiment.model_settings,
            "input_shape": experiment.input_shape,
            "num_classes": None if experiment.num_classes is None else int(experiment.num_classes),
        },
        "task": type(dataset.task).__name__,
        "inputs": inputs,
    }
    if isinstance(dataset.site, SiteData):
        description["schema"] = dataset.site.schema.as_dict()
    return description


class ModelSaver:
    """Keeps a run's model: the last, or the best at the mean test accuracy (or else loss) over the nodes.

    Parameters
    ----------
    folder : the run's
    how : ``last``, ``best``, or None to keep none
    description : of the model, for the files' metadata
    """

    def __init__(self, folder: Path, how: str | None, description: Mapping[str, Any] | None = None) -> None:
        self.folder, self.how, self.description = folder, how, description or {}

    def offer(self, server_round: int, models: dict[str, ArrayRecord], metrics: dict[str, float]) -> None:
        """Write a round's models if they are the best; a resumed run compares with those already written."""
        is_first = not has_diverged(metrics) and not _files(self.folder)
        if self.how == "best" and (_value(metrics) > self._best() or is_first):
            self._write(models, server_round, metrics)

    def resume_from(self, server_round: int, models: dict[str, ArrayRecord], split: str) -> None:
        """Continue a run from its checkpoint; ``split`` is the one on which the best is chosen.

        The best of the rounds before may never have been written.
        """
        if self.how != "best":
            discard(self.folder)  # older than the checkpoint's model
        elif not _files(self.folder):
            what = f"save=best: no model of the rounds before {server_round} was kept"
            logger.warning("%s: the best is chosen among this round and those after it", what)
            measured = {name: by_round(self.folder, f"{split}/{name}") for name in ("accuracy", "loss")}
            if metrics := {name: of[server_round] for name, of in measured.items() if server_round in of}:
                self.offer(server_round, models, metrics)

    def end(self, server_round: int, models: dict[str, ArrayRecord], metrics: dict[str, float]) -> None:
        """Write the last models, if ``how`` is ``last``."""
        if self.how == "last":
            self._write(models, server_round, metrics)

    def _best(self) -> float:
        """Return the value of the saved models; minus infinity if there are none."""
        for path in _files(self.folder):
            with _open_file(path) as file:
                value = float(_description_of(file).get("value", "nan"))
                return -math.inf if math.isnan(value) else value
        return -math.inf

    def _write(self, models: dict[str, ArrayRecord], server_round: int, metrics: dict[str, float]) -> None:
        description = {**self.description, "round": str(server_round), "value": repr(_value(metrics))}
        if len(models) == 1:
            ((name, arrays),) = models.items()
            _write(self.folder / MODEL_FILE, arrays, description | {"model": name})
            shutil.rmtree(self.folder / MODELS_FOLDER, ignore_errors=True)
            return
        fresh, old = self.folder / UNFINISHED_FOLDER, self.folder / MODELS_FOLDER
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir()
        for name, arrays in models.items():
            _write(fresh / f"{quote(name, safe='')}.safetensors", arrays, description | {"model": name})
        shutil.rmtree(old, ignore_errors=True)
        (self.folder / MODEL_FILE).unlink(missing_ok=True)
        os.replace(fresh, old)  # a kill never leaves models of two rounds


def _value(metrics: dict[str, float]) -> float:
    """Return the value by which models are compared, higher is better; NaN for one that has diverged."""
    if has_diverged(metrics):
        return math.nan
    return metrics["accuracy"] if "accuracy" in metrics else -metrics.get("loss", math.nan)


def discard(folder: Path) -> None:
    """Remove the models of a run that starts from the beginning."""
    (folder / MODEL_FILE).unlink(missing_ok=True)
    for name in (MODELS_FOLDER, UNFINISHED_FOLDER):
        shutil.rmtree(folder / name, ignore_errors=True)


def has_model(run: Path) -> bool:
    """Say whether a run has kept a model, in a file of its own or in its last checkpoint."""
    return bool(_files(run)) or checkpoint.load(run) is not None


def descriptions(run: Path) -> dict[str, dict[str, Any]]:
    """Return the metadata of a run's model files by the model's name, and ``size``, its number of values.

    No class is imported or built. Empty where there is no such file.

    Raises
    ------
    UserError : for a file that is damaged
    """
    described = {}
    for path in _files(run):
        with _open_file(path) as file:
            shapes = [file.get_slice(key).get_shape() for key in file.keys()]  # noqa: SIM118 - no mapping
            about = _description_of(file)
            described[str(about.get("model", "global"))] = {**about, "size": sum(map(math.prod, shapes))}
    return described


def load_model(run: Path, name: str | None = None) -> SavedModel:
    """Return a run's model, built from its config.yaml.

    Raises
    ------
    UserError : when there is none, or several and no ``name``
    """
    if not (run / "config.yaml").is_file():
        raise UserError(f"{run} is not a run folder: it has no config.yaml")
    written = _written(run)
    models = {one: arrays for one, (arrays, _) in written.items()}
    description = next((about for _, about in written.values()), None)
    experiment = _experiment(run, description)
    with _naming_config(run):
        models = models or _in_checkpoint(run, experiment)
    if not models:
        raise UserError(f"{run} has kept no model: run it with save=last or save=best")
    if name is None and len(models) > 1:
        raise UserError(f"{run} has {len(models)} models: name one of {', '.join(models)}")
    if name is not None and name not in models:
        raise UserError(f"{run} has no model {name}: expected one of {', '.join(models)}")
    chosen = next(iter(models)) if name is None else name
    with _naming_config(run):
        network = experiment.model()
        load_arrays(network, models[chosen])
        about = written[chosen][1] if description else _describe_checkpoint(run, experiment)
    return SavedModel(network.eval(), experiment, {**about, "model": chosen})


@contextlib.contextmanager
def _naming_config(run: Path) -> Iterator[None]:
    """Turn errors into a ``UserError`` of one line: config.yaml is damaged, or of another version."""
    try:
        yield
    except (ValueError, TypeError, AttributeError, LookupError) as error:
        what = " ".join(str(error).split())
        raise UserError(f"{run}: config.yaml and the model do not belong together ({what})") from error


def _describe_checkpoint(run: Path, experiment: Experiment) -> dict[str, Any]:
    """Describe the model of a checkpoint by the run's configuration and data set."""
    return describe(experiment) | {"identity": environment.read_environment(run).get("identity")}


def _write(target: Path, arrays: ArrayRecord, description: dict[str, Any]) -> None:
    fresh = target.with_suffix(".tmp")
    tensors = {key: tensor.contiguous() for key, tensor in arrays.to_torch_state_dict().items()}
    try:
        with environment.name_file_in_errors(target):
            save_file(
                tensors,
                fresh,
                metadata={METADATA_KEY: json.dumps(description, sort_keys=True, default=str)},
            )
        os.replace(fresh, target)
    except (OSError, SafetensorError) as error:
        fresh.unlink(missing_ok=True)
        raise error if isinstance(error, OSError) else OSError(f"{error}: '{target}'") from error


def _written(run: Path) -> dict[str, tuple[ArrayRecord, dict[str, Any]]]:
    """Return the models in safetensors files and their descriptions, by name."""
    models = {}
    for path in _files(run):
        with _open_file(path) as file:
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - no mapping
            description = _description_of(file)
            models[str(description.get("model", "global"))] = ArrayRecord(tensors), description
    return models


def _description_of(file: Any) -> dict[str, Any]:
    """Return the description in a file's metadata."""
    description = json.loads((file.metadata() or {}).get(METADATA_KEY, "null"))
    if not isinstance(description, dict):
        raise ValueError(f"{METADATA_KEY} is not a JSON object")
    return description


def _files(run: Path) -> list[Path]:
    several = sorted((run / MODELS_FOLDER).glob("*.safetensors"), key=lambda path: _by_numbers(path.stem))
    return [run / MODEL_FILE] if (run / MODEL_FILE).exists() else several


def _by_numbers(name: str) -> list[str | int]:
    """Return a sort key that puts node2 before node10."""
    return [int(text) if text.isdecimal() else text for text in re.split(r"(\d+)", name)]


@contextlib.contextmanager
def _open_file(path: Path) -> Iterator[Any]:
    try:
        with safe_open(path, "pt") as file:
            yield file
    except (SafetensorError, ValueError) as error:  # the latter: metadata that are not JSON
        raise UserError(f"{path} is damaged ({error}): run it again with resume=false") from error


def _in_checkpoint(run: Path, experiment: Experiment) -> dict[str, ArrayRecord]:
    """Return the models in a run's last checkpoint."""
    if (saved := checkpoint.load(run)) is None:
        return {}
    strategy = experiment.strategy()
    saved.restore(strategy)
    return strategy.models_to_evaluate(saved.arrays)


def _experiment(run: Path, description: Mapping[str, Any] | None) -> Experiment:
    """Return a run's experiment by its written configuration, on the CPU."""
    path = run / "config.yaml"
    try:
        settings = yaml.safe_load(path.read_text()) | {"device": "cpu"}
    except (ValueError, TypeError, yaml.YAMLError) as error:
        raise UserError(f"{path} is damaged: run it again") from error
    key = f"the configuration of {path.resolve()}, {environment.checksum(path)}"
    config.register_composed(key, yaml.safe_dump(settings))
    try:
        return Experiment(key, None if description is None else _data_without_rows(description))
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise UserError(f"{run}: the model's file does not say what the model takes ({error!r})") from error


def _name_dtype(rows: Any) -> str:
    return str(rows.dtype).removeprefix("torch.")


def _empty_rows(shape: Any, dtype: Any) -> Any:
    """Return inputs without rows, of the described shape and dtype; a list of several becomes a tuple."""
    if isinstance(dtype, dict):
        return {name: _empty_rows(shape[name], dtype[name]) for name in dtype}
    if isinstance(dtype, list):
        return tuple(map(_empty_rows, shape, dtype))
    return torch.zeros(0, *shape, dtype=getattr(torch, dtype))


def _data_without_rows(description: Mapping[str, Any]) -> Dataset | None:
    """Return an empty data set as the model's file describes it: the run's own data may be missing here.

    None where the file cannot: for another task than classification, or a transform of the user's own.
    """
    inputs, network = description["inputs"], description["network"]
    if description["task"] != Classification.__name__ or "normalize" not in inputs:
        return None
    transform = None
    if (numbers := inputs["normalize"]) is not None:
        mean, std = (tuple(map(float, numbers[key])) for key in ("mean", "std"))
        transform = Normalize(mean, std, float(numbers["scale"]))
    rows = _empty_rows(network["input_shape"], inputs["dtype"])
    labels = torch.zeros(0, dtype=torch.int64)
    encoder = TextEncoder.of(inputs["texts"]) if "texts" in inputs else None
    classes = network["num_classes"]
    return Dataset(
        *(rows, labels, rows, labels, Classification(), transform), num_classes=classes, encoder=encoder
    )
