"""The trained model of a run: written as model.safetensors with ``save``, and read again."""

import contextlib
import json
import logging
import math
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from flwr.app import ArrayRecord
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn

from baselines.errors import UserError
from baselines.experiment import config
from baselines.experiment.experiment import Experiment
from clients.turn import load

from . import checkpoint, environment
from .objective import by_round

ONE = "model.safetensors"
SEVERAL = "models"  # the folder of one file for each, where a strategy trains several
TOLD = "florilegium"  # the one key of a file's metadata, with JSON: of several the order is random
UNFINISHED = f"{SEVERAL}.tmp"  # the same while it is written
logger = logging.getLogger("flwr")


class Keeper:
    """Keeps a run's model: the last, or the best at the mean test accuracy (or else loss) over the nodes.

    Parameters
    ----------
    folder : the run's
    how : ``last``, ``best``, or None for neither
    """

    def __init__(self, folder: Path, how: str | None) -> None:
        self.folder, self.how = folder, how

    def offer(self, server_round: int, models: dict[str, ArrayRecord], metrics: dict[str, float]) -> None:
        """Write a round's models if they are the best; a resumed run goes by those that it has written."""
        if self.how == "best" and (_value(metrics) > self._best() or not _files(self.folder)):
            self._write(models, server_round, metrics)

    def go_on_from(self, server_round: int, models: dict[str, ArrayRecord], split: str) -> None:
        """Take up a run at its checkpoint; ``split`` is what the best is the best on.

        The best of the rounds before may never have been written.
        """
        if self.how != "best":
            discard(self.folder)  # the checkpoint's model is later
        elif not _files(self.folder):
            what = f"save=best: no model of the rounds before {server_round} was kept"
            logger.warning("%s, so that the best is that of the rounds from it on", what)
            measured = {name: by_round(self.folder, f"{split}/{name}") for name in ("accuracy", "loss")}
            if metrics := {name: of[server_round] for name, of in measured.items() if server_round in of}:
                self.offer(server_round, models, metrics)

    def end(self, server_round: int, models: dict[str, ArrayRecord], metrics: dict[str, float]) -> None:
        """Write the last models, if they are to be kept."""
        if self.how == "last":
            self._write(models, server_round, metrics)

    def _best(self) -> float:
        """Return the value of the models that are there; minus infinity where there are none."""
        for path in _files(self.folder):
            with _opened(path) as file:
                value = float(_told(file).get("value", "nan"))
                return -math.inf if math.isnan(value) else value
        return -math.inf

    def _write(self, models: dict[str, ArrayRecord], server_round: int, metrics: dict[str, float]) -> None:
        told = {"round": str(server_round), "value": repr(_value(metrics))}
        if len(models) == 1:
            ((name, arrays),) = models.items()
            _write(self.folder / ONE, arrays, told | {"model": name})
            shutil.rmtree(self.folder / SEVERAL, ignore_errors=True)
            return
        fresh, old = self.folder / UNFINISHED, self.folder / SEVERAL
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir()
        for place, (name, arrays) in enumerate(models.items()):
            _write(fresh / f"{place}.safetensors", arrays, told | {"model": name})
        shutil.rmtree(old, ignore_errors=True)
        (self.folder / ONE).unlink(missing_ok=True)
        os.replace(fresh, old)  # all of them or, after a kill, those of the round before


def _value(metrics: dict[str, float]) -> float:
    return metrics["accuracy"] if "accuracy" in metrics else -metrics.get("loss", math.nan)


def discard(folder: Path) -> None:
    """Remove the models of a run that starts from the beginning."""
    (folder / ONE).unlink(missing_ok=True)
    for name in (SEVERAL, UNFINISHED):
        shutil.rmtree(folder / name, ignore_errors=True)


def kept(run: Path) -> bool:
    """Say whether a run has kept a model, in a file of its own or in its last checkpoint."""
    return bool(_files(run)) or checkpoint.load(run) is not None


def saved_model(run: Path, name: str | None = None) -> nn.Module:
    """Return a run's model, built from its config.yaml, on the CPU and in evaluation mode.

    Raises
    ------
    UserError : when there is none, or several and no ``name``
    """
    if not (run / "config.yaml").is_file():
        raise UserError(f"{run} is no run folder: it has no config.yaml")
    this = _experiment(run)
    models = _written(run) or _in_checkpoint(run, this)
    if not models:
        raise UserError(f"{run} has kept no model: run it with save=last or save=best")
    if name is None and len(models) > 1:
        raise UserError(f"{run} has {len(models)} models: name one of {', '.join(models)}")
    if name is not None and name not in models:
        raise UserError(f"{run} has no model {name}: expected one of {', '.join(models)}")
    model = this.model()
    load(model, models[name] if name is not None else next(iter(models.values())))
    return model.eval()


def _write(target: Path, arrays: ArrayRecord, told: dict[str, str]) -> None:
    fresh = target.with_suffix(".tmp")
    tensors = {key: tensor.contiguous() for key, tensor in arrays.to_torch_state_dict().items()}
    try:
        with environment.naming(target):
            save_file(tensors, fresh, metadata={TOLD: json.dumps(told, sort_keys=True)})
        os.replace(fresh, target)
    except (OSError, SafetensorError) as error:
        fresh.unlink(missing_ok=True)
        raise error if isinstance(error, OSError) else OSError(f"{error}: '{target}'") from error


def _written(run: Path) -> dict[str, ArrayRecord]:
    """Return the models in safetensors files, by name."""
    found = {}
    for path in _files(run):
        with _opened(path) as file:
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - no mapping
            found[_told(file).get("model", "global")] = ArrayRecord(tensors)
    return found


def _told(file: Any) -> dict[str, str]:
    """Return what a file says of its model; an older one has a key for each."""
    metadata = file.metadata() or {}
    told: dict[str, str] = json.loads(metadata[TOLD]) if TOLD in metadata else metadata
    return told


def _files(run: Path) -> list[Path]:
    several = sorted((run / SEVERAL).glob("*.safetensors"), key=lambda path: int(path.stem))
    return [run / ONE] if (run / ONE).exists() else several


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with safe_open(path, "pt") as file:
            yield file
    except SafetensorError as error:
        raise UserError(f"{path} is damaged ({error}): run it again with resume=false") from error


def _in_checkpoint(run: Path, this: Experiment) -> dict[str, ArrayRecord]:
    """Return the models that the strategy of a run's last checkpoint has."""
    if (saved := checkpoint.load(run)) is None:
        return {}
    strategy = this.strategy()
    strategy.load_state_dict(saved.strategy)
    return strategy.models(saved.arrays)


def _experiment(run: Path) -> Experiment:
    """Return a run's experiment by its written configuration, on the CPU."""
    path = run / "config.yaml"
    try:
        settings = yaml.safe_load(path.read_text()) | {"device": "cpu"}
    except (ValueError, TypeError, yaml.YAMLError) as error:
        raise UserError(f"{path} is damaged: run it again") from error
    key = f"the configuration of {path.resolve()}, {environment.checksum(path)}"
    config.take(key, yaml.safe_dump(settings))
    return Experiment(key)
