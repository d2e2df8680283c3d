"""Loggers: where else a run's metrics go, besides metrics.csv.

A metric's name there is ``split/model/metric``, its step the round. A resumed run goes on in the same
place, and what had been logged after the checkpoint is there once.
"""

from dataclasses import dataclass, field
from importlib import import_module
from json import dumps, loads
from pathlib import Path
from typing import Any

from filelock import FileLock

from baselines.errors import UserError
from baselines.experiment.experiment import Experiment
from baselines.experiment.ranges import Logger


@dataclass
class TensorBoard(Logger):
    """Event files in the run's folder ``tensorboard``: ``tensorboard --logdir outputs``."""

    _writer: Any = field(default=None, init=False, repr=False)

    def begin(self, this: Experiment, folder: Path, last_round: int | None) -> None:
        module = _imported("torch.utils.tensorboard", "tensorboard")
        first = 0 if last_round is None else last_round + 1  # an earlier process may have logged later ones
        self._writer = module.SummaryWriter(str(folder / "tensorboard"), purge_step=first)

    def write(self, server_round: int, metrics: dict[str, float]) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, server_round)

    def end(self, status: str) -> None:
        self._writer.add_text("status", status)
        self._writer.close()


@dataclass
class MLflow(Logger):
    """A run of an MLflow experiment, with the configuration as its parameters.

    Parameters
    ----------
    uri : of the tracking server or store; None for ``mlflow.db`` beside the run's folder, one for a sweep
    experiment : the experiment's name
    """

    uri: str | None = None
    experiment: str = "florilegium"

    _client: Any = field(default=None, init=False, repr=False)
    _run_id: str = field(default="", init=False, repr=False)
    _logged: dict[str, int] | None = field(default=None, init=False, repr=False)  # last round by name

    def begin(self, this: Experiment, folder: Path, last_round: int | None) -> None:
        module = _imported("mlflow", "mlflow")
        beside = folder.absolute().parent
        with FileLock(beside / ".mlflow.lock"):  # another job of the sweep may lay out the store
            self._client = module.MlflowClient(self.uri or f"sqlite:///{beside}/mlflow.db")
            experiment_id = self._experiment_id()
        known = folder / "mlflow_run_id.txt"
        if last_round is not None and known.exists():
            self._run_id = known.read_text()
            self._logged = {}
            return
        self._run_id = self._client.create_run(experiment_id, run_name=this.overrides).info.run_id
        known.write_text(self._run_id)
        for name, value in this.flat_configuration().items():
            self._client.log_param(self._run_id, name, value[:500])  # as long as MLflow takes them

    def write(self, server_round: int, metrics: dict[str, float]) -> None:
        for name, value in metrics.items():
            if server_round > self._last(name):
                self._client.log_metric(self._run_id, name, value, step=server_round)

    def end(self, status: str) -> None:
        state = "FINISHED" if status == "finished" else "FAILED"
        self._client.set_tag(self._run_id, "status", status[:500])
        self._client.set_terminated(self._run_id, state)

    def _experiment_id(self) -> str:
        found = self._client.get_experiment_by_name(self.experiment)
        return str(found.experiment_id if found else self._client.create_experiment(self.experiment))

    def _last(self, name: str) -> int:
        """Return the last round that an earlier process logged."""
        if self._logged is None:
            return -1
        if name not in self._logged:
            history = self._client.get_metric_history(self._run_id, name)
            self._logged[name] = max((point.step for point in history), default=-1)
        return self._logged[name]


@dataclass
class WandB(Logger):
    """A run of Weights & Biases, with the configuration; a sweep's runs are one group.

    Parameters
    ----------
    project : the project's name
    mode : ``online``, or ``offline``: files in the run's folder, for ``wandb sync``
    """

    project: str = "florilegium"
    mode: str = "online"

    _run: Any = field(default=None, init=False, repr=False)
    _notes: Path = field(default=Path(), init=False, repr=False)
    _logged: dict[str, int] = field(default_factory=dict, init=False, repr=False)  # last round by name

    def begin(self, this: Experiment, folder: Path, last_round: int | None) -> None:
        module = _imported("wandb", "wandb")
        self._notes = folder / "wandb_run.json"
        known = loads(self._notes.read_text()) if last_round is not None and self._notes.exists() else {}
        self._run = module.init(
            project=self.project,
            mode=self.mode,
            dir=str(folder),
            id=known.get("id"),
            resume="allow" if known else None,
            name=this.overrides,
            group=folder.absolute().parent.name,
            config=this.flat_configuration(),
        )
        self._logged = known.get("logged", {})
        self._run.define_metric("round")
        self._run.define_metric("*", step_metric="round")  # some of a round come after those of the next

    def write(self, server_round: int, metrics: dict[str, float]) -> None:
        new = {name: value for name, value in metrics.items() if server_round > self._logged.get(name, -1)}
        if new:
            self._run.log({"round": server_round, **new})
            self._logged |= dict.fromkeys(new, server_round)
            self._notes.write_text(dumps({"id": self._run.id, "logged": self._logged}))

    def end(self, status: str) -> None:
        self._run.summary["status"] = status
        self._run.finish(exit_code=0 if status == "finished" else 1)


def _imported(module: str, package: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise UserError(
            f"logger={package} needs the package {package}: pip install -e '.[{package}]'"
        ) from error
