"""Loggers: send metrics to TensorBoard, MLflow or Weights & Biases.

A metric's name there is ``split/model/metric``, its step the round. A resumed run goes on in the same
place, and what had been logged after the checkpoint is there once.
"""

import logging
import os
import re
import sys
from dataclasses import dataclass, field
from importlib import import_module
from json import dumps, loads
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from filelock import FileLock
from rich import progress as bars
from rich.console import Console
from rich.logging import RichHandler

from baselines.errors import UserError
from baselines.experiment.experiment import Experiment
from baselines.experiment.validation import Logger


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


# How a run shows where it is: a live bar on a terminal, plain lines elsewhere.


def is_colored(stream: TextIO) -> bool:
    """Say whether lines to a stream may have colours: on a terminal, where NO_COLOR is not set."""
    return stream.isatty() and not os.environ.get("NO_COLOR")


def without_colors(text: str) -> str:
    """Return a text without the codes that colour it."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def set_log_colors() -> None:
    """Colour Flower's log lines where stderr may have colours."""
    from strategies.shared.flower_private import update_console_handler

    update_console_handler(colored=is_colored(sys.stderr))


class Progress:
    """A context in which each round is shown with its loss, accuracy, time and the time left.

    Parameters
    ----------
    rounds : how many there will be
    name : what each line begins with where several runs write to one terminal, which then has no bar
    """

    def __init__(self, rounds: int, name: str = "") -> None:
        self.rounds, self.name = rounds, name
        self.console = Console()
        self.bar: bars.Progress | None = None
        if self.console.is_terminal and not name:
            self.bar = bars.Progress(
                bars.TextColumn("round"),
                bars.MofNCompleteColumn(),
                bars.BarColumn(),
                bars.TextColumn("{task.fields[text]}"),
                bars.TimeElapsedColumn(),
                bars.TextColumn("left"),
                bars.TimeRemainingColumn(),
                console=self.console,
            )
            self.task = self.bar.add_task("rounds", total=rounds, text="")

    def __enter__(self) -> "Progress":
        """Start the bar, and let log lines appear above it."""
        if self.bar:
            self.bar.start()
            logger = logging.getLogger("flwr")
            self.handlers, logger.handlers = (
                logger.handlers,
                [RichHandler(console=self.console, show_path=False)],
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the bar and put the log handlers back."""
        if self.bar:
            self.bar.stop()
            logging.getLogger("flwr").handlers = self.handlers

    def show(self, server_round: int, metrics: dict[str, float]) -> None:
        """Show the round's test metrics; without any (not evaluated) only the count moves on."""
        text = "  ".join(f"{name} {value:.4g}" for name, value in metrics.items())
        if self.bar:
            self.bar.update(self.task, completed=server_round)
            if text:
                self.bar.update(self.task, text=text)
        else:
            line = f"{self.name}round {server_round}/{self.rounds}  {text}"
            self.console.print(line.rstrip(), highlight=False)
