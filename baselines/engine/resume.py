"""Resume a run: whether it can be saved, is finished, and where it continues."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from baselines.errors import UserError
from baselines.experiment.config import leaves
from baselines.experiment.experiment import Experiment
from baselines.experiment.identity import LAUNCH_SETTINGS, UNHASHED_SETTINGS
from baselines.experiment.messages import warn_once

from . import environment
from .checkpoint import LATEST_CHECKPOINT, UNSAVED_STATE_ADVICE, Checkpoint, find_unsaved_fields, load
from .run_folder import OTHER_FOLDER_ADVICE, has_trained
from .saved_model import has_model

logger = logging.getLogger("flwr")

MAX_SETTINGS_NAMED = 4  # settings in a message


def check_resumable(experiment: Experiment, gives_node_states: bool) -> None:
    """Raise ``UserError`` where the checkpoints that are asked for could not be resumed."""
    every = experiment.settings.checkpoint_every
    if not experiment.prototype.is_resumable:
        raise UserError(
            f"checkpoint_every={every}: {experiment.prototype.name} has no state_dict to continue from; "
            "set checkpoint_every=0"
        )
    if lost := find_unsaved_fields(experiment.prototype):
        raise UserError(
            f"checkpoint_every={every}: {experiment.prototype.name} keeps {', '.join(lost)}, {UNSAVED_STATE_ADVICE} "
            "checkpoint_every=0"
        )
    if experiment.has_stateful_nodes and not gives_node_states:
        raise UserError(
            f"checkpoint_every={every}: the nodes keep a state of their own (SCAFFOLD, "
            "client.keep_optimizer, private or a correction) that this runtime cannot restore; use "
            "runtime=inline or runtime=ray, or checkpoint_every=0"
        )


def find_checkpoint(experiment: Experiment, folder: Path) -> Checkpoint | None:
    """Return the checkpoint that ``resume=true`` continues from; None if there is none.

    Raises
    ------
    UserError : when the folder belongs to another run, or lacks what this one needs
    """
    saved = load(folder)
    if saved is None:
        return None
    if not _is_begun_by(experiment, saved, _written(folder)):
        raise UserError(_describe_other_run(experiment, folder, LATEST_CHECKPOINT))
    if experiment.has_stateful_nodes and saved.nodes is None:
        raise UserError(
            f"{folder / LATEST_CHECKPOINT} lacks the node states: start again with resume=false"
        )
    metrics = folder / "metrics.csv"
    if not _has_rows(metrics, saved.metrics_size):
        raise UserError(f"{metrics} has lost rows since the checkpoint: start again with resume=false")
    if saved.metrics_sum != environment.checksum(metrics, saved.metrics_size):
        raise UserError(f"{metrics} has changed since the checkpoint: start again with resume=false")
    _name_changed(experiment, folder)
    return saved


def is_finished(experiment: Experiment, folder: Path) -> bool:
    """Say whether ``folder`` holds this run, finished or diverged; one with fewer rounds can be continued.

    Raises
    ------
    UserError : when it holds another run, or a shorter one without a checkpoint to continue from
    """
    content, written = environment.read_environment(folder), _written(folder)
    if not content and has_trained(folder / "metrics.csv"):
        warn_once(f"{folder}: {environment.find_damage(folder)}; the run is taken for unfinished")
    is_this = content.get("identity") == experiment.identity(like=written)
    if content.get("status") not in environment.ENDED_STATUSES:
        another = "identity" in content and not is_this
        if another and load(folder) is None and has_trained(folder / "metrics.csv"):
            raise UserError(_describe_other_run(experiment, folder, "environment.json"))
        return False
    if is_this:
        if reason := environment.find_damage(folder):
            warn_once(f"{folder}: {reason}; the run is taken for unfinished")
        else:
            _name_changed(experiment, folder)
        return reason is None
    saved = load(folder)
    if saved is not None and _is_begun_by(experiment, saved, written):
        return False
    if (
        _find_differing(experiment, written, _read_file_hashes(folder)) == ["rounds"]
        and type(written.get("rounds")) is int
    ):
        raise UserError(_describe_other_length(experiment, folder, written["rounds"], saved))
    raise UserError(_describe_other_run(experiment, folder, "environment.json"))


def describe_missing_outputs(experiment: Experiment, folder: Path) -> str:
    """Say in brackets what a finished run lacks of the requested model and loggers; empty if nothing."""
    written, save = _written(folder), experiment.settings.save
    if (
        save == "last" and written.get("save") is None and has_model(folder)
    ):  # its checkpoint has that model
        save = None
    left = save == written.get("save") and has_model(folder)
    missing = f"save={save}" if save is not None and not left else ""
    loggers = written.get("logger") or {}
    wanted = yaml.safe_load(experiment.configuration()).get("logger") or {}
    if any(loggers.get(name) != settings for name, settings in wanted.items()):
        missing = f"{missing} and that logger".removeprefix(" and ")
    return f" (it ran without {missing}: to have that, resume=false)" if missing else ""


def _name_changed(experiment: Experiment, folder: Path) -> None:
    """Warn of the user's own packages that have changed since the run began.

    Most changes leave every number unchanged; whether this one does, only the user knows.
    """
    then = environment.read_environment(folder).get("own_sources", {})
    changed = [name for name, now in experiment.own_sources.items() if then.get(name, now) != now]
    if changed:
        warn_once(f"{folder}: {', '.join(changed)} has changed since; resume=false starts again")


def _has_rows(metrics: Path, count: int) -> bool:
    """Say whether metrics.csv has its first ``count`` bytes, without zeros that a machine's crash left."""
    if environment.size(metrics) < count:
        return False
    with open(metrics, "rb") as file:
        return b"\0" not in file.read(count)


def _is_begun_by(experiment: Experiment, saved: Checkpoint, written: dict[str, Any]) -> bool:
    """Say whether a checkpoint is one of this run, or the last of the same run with fewer rounds."""
    shorter = min(saved.rounds, experiment.settings.rounds)
    return saved.identity in (experiment.identity(like=written), experiment.identity(shorter, like=written))


def _describe_other_length(
    experiment: Experiment, folder: Path, rounds: int, saved: Checkpoint | None
) -> str:
    wanted = experiment.settings.rounds
    if rounds > wanted:
        return (
            f"{folder} has {rounds} rounds of this run already, and rounds={wanted}: {OTHER_FOLDER_ADVICE}"
        )
    why = (
        f"left no {LATEST_CHECKPOINT}"
        if saved is None
        else f"its {LATEST_CHECKPOINT} is of other versions, or another run"
    )
    return (
        f"{folder} has {rounds} rounds of this run, and {why}, so that it cannot go on to {wanted}: start "
        f"again with resume=false, or {OTHER_FOLDER_ADVICE}"
    )


def _describe_other_run(experiment: Experiment, folder: Path, name: str | Path) -> str:
    keys = _find_differing(experiment, _written(folder), _read_file_hashes(folder))
    named = ", ".join(keys[:MAX_SETTINGS_NAMED] + ["..."] * (len(keys) > MAX_SETTINGS_NAMED))
    differs = f"another configuration ({named})" if keys else "another configuration or other versions"
    return f"{folder / name} belongs to a run with {differs}: {OTHER_FOLDER_ADVICE}, or start again with resume=false"


def _written(folder: Path) -> dict[str, Any]:
    """Return the folder's configuration; empty if it cannot be read."""
    try:
        settings = yaml.safe_load((folder / "config.yaml").read_text())
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    return settings if isinstance(settings, dict) else {}


def _read_file_hashes(folder: Path) -> dict[str, str]:
    """Return the hashes of the user's own files that the folder's run has read, by path."""
    files = environment.read_environment(folder).get("files")
    return files if isinstance(files, dict) else {}


def _find_differing(
    experiment: Experiment, written: dict[str, Any], files: Mapping[str, str] | None = None
) -> list[str]:
    """Return the settings in which a written configuration differs; none if it is empty.

    ``files`` are the hashes that the run recorded, by path. Two paths to equal files do not differ; of one
    path, the text says what has become of its file.
    """
    if not written:
        return []
    then, now = files or {}, experiment.files
    before, after = leaves(written), leaves(yaml.safe_load(experiment.configuration()))
    differing = []
    for key in after | before:
        one, other = after.get(key), before.get(key)
        if key.partition(".")[0] in UNHASHED_SETTINGS or key in LAUNCH_SETTINGS:
            continue
        if now.get(str(one), one) != then.get(str(other), other):
            differing.append(key if one != other else f"{one}, {_describe_change(str(one), then, now)}")
    return [*dict.fromkeys(differing)]


def _describe_change(path: str, then: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Say what has become of a file that a run has read."""
    if path not in then:
        return "whose content that run has not recorded"
    return "which has changed" if path in now else "which cannot be read"
