"""Loggers: send metrics to TensorBoard, MLflow or Weights & Biases.

A metric is logged as ``split/metric``, so that several methods share a chart. With several models that is
their mean over the nodes; each model, or node, is ``split/model/metric``. The step is the round. A resumed
run continues the same log, without duplicates. Hyperparameters, commit, identity and status are logged too.
"""

import logging
import os
import re
import shlex
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from importlib import import_module
from json import dumps, loads
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from filelock import FileLock
from rich import progress as bars
from rich.console import Console
from rich.logging import RichHandler
from rich.progress_bar import ProgressBar
from rich.table import Table

from baselines.errors import UserError
from baselines.experiment.experiment import Experiment
from baselines.experiment.hydra_callbacks import Sweep
from baselines.experiment.identity import UNHASHED_SETTINGS
from baselines.experiment.validation import Logger

from .environment import FINISHED, INTERRUPTED, git_commit


@dataclass
class TensorBoard(Logger):
    """Event files in the run's folder ``tensorboard``: ``tensorboard --logdir outputs``."""

    _writer: Any = field(default=None, init=False, repr=False)
    _ending: Any = field(default=None, init=False, repr=False)  # HPARAMS tab, at the end

    def begin(self, experiment: Experiment, folder: Path, last_round: int | None) -> None:
        module = _import_module("torch.utils.tensorboard", "tensorboard")
        first = 0 if last_round is None else last_round + 1  # later rounds may have been logged
        self._writer = module.SummaryWriter(str(folder / "tensorboard"), purge_step=first)
        for name, tag in run_tags(experiment).items():
            self._writer.add_text(name, tag)
        chosen = {key: _as_tensorboard(value) for key, value in experiment.hyperparameters().items()}
        # the first of the three would fix the columns for all runs of a sweep; TensorBoard finds them itself
        _, beginning, self._ending = import_module("torch.utils.tensorboard.summary").hparams(chosen, {})
        self._writer.file_writer.add_summary(beginning)

    def write(self, server_round: int, metrics: dict[str, float]) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, server_round)

    def end(self, status: str) -> None:
        self._writer.add_text("status", status)
        if status == FINISHED:
            self._writer.file_writer.add_summary(self._ending)
        self._writer.close()


def _as_tensorboard(value: object) -> object:
    """Return a value as the table of hyperparameters takes it: numbers, and texts for all else."""
    return value if type(value) in (int, float, str) else str(value)


@dataclass
class MLflow(Logger):
    """A run of an MLflow experiment, with the configuration as its parameters; KILLED if interrupted.

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

    def begin(self, experiment: Experiment, folder: Path, last_round: int | None) -> None:
        module = _import_module("mlflow", "mlflow")
        parent = folder.absolute().parent
        with FileLock(parent / ".mlflow.lock"):  # another run of the sweep may be creating the store
            self._client = module.MlflowClient(self.uri or f"sqlite:///{parent}/mlflow.db")
            experiment_id = self._experiment_id()
        known = folder / "mlflow_run_id.txt"
        if last_round is not None and known.exists():
            self._run_id = known.read_text()
            self._client.update_run(self._run_id, status="RUNNING")
            self._logged = {}
            return
        tags = run_tags(experiment)
        if "commit" in tags:
            tags["mlflow.source.git.commit"] = tags["commit"]  # MLflow's own, a column of its table
        created = self._client.create_run(experiment_id, tags=tags, run_name=run_name(experiment, folder))
        self._run_id = created.info.run_id
        known.write_text(self._run_id)
        entities = import_module("mlflow.entities")
        parameters = [
            entities.Param(name, str(value)[:500])  # as long as MLflow takes them
            for name, value in experiment.hyperparameters().items()
        ]
        for batch in split_batches(parameters, 100):  # as many as MLflow takes at once
            self._client.log_batch(self._run_id, params=batch)

    def write(self, server_round: int, metrics: dict[str, float]) -> None:
        point, now = import_module("mlflow.entities").Metric, int(1000 * time.time())
        new = [
            point(name, value, now, server_round)
            for name, value in metrics.items()
            if server_round > self._last(name)
        ]
        for batch in split_batches(new, 1000):  # as many as MLflow takes at once
            self._client.log_batch(self._run_id, metrics=batch)

    def end(self, status: str) -> None:
        state = {FINISHED: "FINISHED", INTERRUPTED: "KILLED"}.get(status, "FAILED")
        self._client.set_tag(self._run_id, "status", status[:500])
        self._client.set_terminated(self._run_id, state)

    def _experiment_id(self) -> str:
        existing = self._client.get_experiment_by_name(self.experiment)
        return str(existing.experiment_id if existing else self._client.create_experiment(self.experiment))

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

    def begin(self, experiment: Experiment, folder: Path, last_round: int | None) -> None:
        module = _import_module("wandb", "wandb")
        self._notes = folder / "wandb_run.json"
        known = loads(self._notes.read_text()) if last_round is not None and self._notes.exists() else {}
        self._run = module.init(
            project=self.project,
            mode=self.mode,
            dir=str(folder),
            id=known.get("id"),
            resume="allow" if known else None,
            name=run_name(experiment, folder),
            group=folder.absolute().parent.name,
            tags=[f"{name} {tag}" for name, tag in run_tags(experiment).items()],
            config=experiment.hyperparameters(),
        )
        self._logged = known.get("logged", {})
        self._run.define_metric("round")
        self._run.define_metric("*", step_metric="round")  # rounds may be logged out of order

    def write(self, server_round: int, metrics: dict[str, float]) -> None:
        new = {name: value for name, value in metrics.items() if server_round > self._logged.get(name, -1)}
        if new:
            self._run.log({"round": server_round, **new})
            self._logged |= dict.fromkeys(new, server_round)
            self._notes.write_text(dumps({"id": self._run.id, "logged": self._logged}))

    def end(self, status: str) -> None:
        self._run.summary["status"] = status
        codes = {FINISHED: 0, INTERRUPTED: 255}  # the latter is W&B's own for Ctrl-C
        self._run.finish(exit_code=codes.get(status, 1))


def run_name(experiment: Experiment, folder: Path) -> str:
    """Return a run's display name: the overrides that decide its numbers, or else its folder's name."""
    texts = {text: re.split("[.=]", text.lstrip("+~"))[0] for text in shlex.split(experiment.overrides)}
    own = [text for text, group in texts.items() if group not in (*UNHASHED_SETTINGS, "data_root", "hydra")]
    return shlex.join(own) or folder.absolute().name


def run_tags(experiment: Experiment) -> dict[str, str]:
    """Return the commit and the identity of a run, as tags."""
    commit = git_commit()
    return ({"commit": commit} if commit else {}) | {"identity": experiment.identity()}


def split_batches(items: list[Any], count: int) -> Iterator[list[Any]]:
    """Yield the items in batches of ``count``."""
    for first in range(0, len(items), count):
        yield items[first : first + count]


def _import_module(module: str, package: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise UserError(
            f"logger={package} needs the package {package}: pip install -e '.[{package}]'"
        ) from error


# Progress of a run: a live bar on a terminal, plain lines elsewhere.


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


class Bars(bars.Progress):
    """Progress lines that fit the terminal: the bar and the metrics make way first."""

    def get_renderables(self) -> Iterator[Table]:
        """Yield a line for each task."""
        for task in self.tasks:
            yield bar_line(task, self.console.width)


def bar_line(task: bars.Task, width: int) -> Table:
    """Return a task's line within ``width``: drop the bar first, then the time taken, then the metrics."""
    head, own = task.description, [*task.fields["texts"], f"in {format_time(task.elapsed)}"]
    end = f"left {format_time(task.fields['left']())}"
    while own and len("  ".join([head, *own, end])) > width:
        own.pop() if own[-1].startswith("in ") else own.pop(0)
    room = width - len("  ".join([head, *own, end])) - 2
    line = Table.grid(padding=(0, 2, 0, 0))
    bar = [ProgressBar(task.total or 1, task.completed, width=min(room, 40))] if room >= 10 else []
    line.add_row(head, *bar, *own, end)
    return line


def format_time(seconds: float | None) -> str:
    """Return a time as 0:01:30."""
    return "-:--:--" if seconds is None else str(timedelta(seconds=int(seconds)))


class Progress:
    """A context in which each round is shown with its loss, accuracy, time and the time left.

    Parameters
    ----------
    rounds : number of rounds
    name : prefix of each line where several runs share a terminal, which then has no bar
    sweep : the sweep that this process runs; shown on a second line
    """

    def __init__(self, rounds: int, name: str = "", sweep: Sweep | None = None) -> None:
        self.rounds, self.name, self.sweep = rounds, name, sweep
        self.console = Console()
        self.bar: bars.Progress | None = None
        self.started = time.monotonic()
        self.first, self.done = 0, 0  # the round that this process resumed from, and its last completed one
        if self.console.is_terminal and not name:
            self.bar = Bars(console=self.console)
            self.task = self.bar.add_task(f"round 0/{rounds}", total=rounds, texts=(), left=self._left)
            if sweep and sweep.total:
                head = f"run {sweep.number + 1}/{sweep.total}"
                columns: dict[str, Any] = {"completed": sweep.number, "texts": (), "left": self._sweep_left}
                self.whole = self.bar.add_task(head, total=sweep.total, **columns)

    def _left(self) -> float | None:
        """Estimate the seconds left, from the mean duration of this process' rounds."""
        done = self.done - self.first
        return (time.monotonic() - self.started) / done * (self.rounds - self.done) if done else None

    def _sweep_left(self) -> float | None:
        assert self.sweep is not None
        share = (self.done - self.first) / self.rounds
        return self.sweep.seconds_left(time.monotonic() - self.started, share)

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
        if self.sweep:
            self.sweep.count(time.monotonic() - self.started, (self.done - self.first) / self.rounds)
        if self.bar:
            if self.sweep and self.sweep.total:
                self.bar.remove_task(self.whole)  # the next run shows it
            self.bar.stop()
            logging.getLogger("flwr").handlers = self.handlers

    def show(self, server_round: int, metrics: dict[str, float]) -> None:
        """Show the round's test metrics; without any (not evaluated), only advance the count."""
        texts = [f"{name} {value:.4g}" for name, value in metrics.items()]
        if not self.done and server_round:
            self.first = server_round - 1  # not 0 in a resumed run
        self.done = server_round
        if self.bar:
            new: dict[str, Any] = {"texts": texts} if texts else {}
            head = f"round {server_round}/{self.rounds}"
            self.bar.update(self.task, completed=server_round, description=head, **new)
            if self.sweep and self.sweep.total:
                self.bar.update(self.whole, completed=self.sweep.number + server_round / self.rounds)
        else:
            line = f"{self.name}round {server_round}/{self.rounds}  {'  '.join(texts)}"
            self.console.print(line.rstrip(), highlight=False)
