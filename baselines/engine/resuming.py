"""Resuming: may a run be saved, is it finished, and what does it go on from?"""

import logging
from pathlib import Path

from baselines.errors import UserError
from baselines.experiment.experiment import Experiment

from . import environment
from .checkpoint import LATEST, Checkpoint, load

logger = logging.getLogger("flwr")


def check(this: Experiment, gives_node_states: bool) -> None:
    """Raise ``UserError`` when checkpoints are asked for that could not be resumed."""
    if (every := this.settings.checkpoint_every) == 0:
        return
    if not this.prototype.resumable:
        raise UserError(
            f"checkpoint_every={every}: {this.prototype.name} has no state_dict to continue from; "
            "set checkpoint_every=0"
        )
    if this.nodes_remember and not gives_node_states:
        raise UserError(
            f"checkpoint_every={every}: the nodes keep a state of their own (SCAFFOLD, "
            "client.keep_optimizer, private or a correction) that this runtime cannot restore; use "
            "runtime=inline or runtime=ray, or checkpoint_every=0"
        )


def to_resume(this: Experiment, folder: Path, gives_node_states: bool) -> Checkpoint | None:
    """Return what ``resume=true`` continues from; None to start from the beginning.

    Raises
    ------
    UserError : when what is there belongs to another run, or lacks what this one needs
    """
    check(this, gives_node_states)
    saved = load(folder) if this.settings.resume else None
    if saved is None:
        return None
    if not _is_begun_by(this, saved):
        raise UserError(_another(folder / LATEST))
    if this.nodes_remember and saved.nodes is None:
        raise UserError(f"{folder / LATEST} lacks the node states: start again with resume=false")
    metrics = folder / "metrics.csv"
    if not _has_rows(metrics, saved.metrics_size):
        raise UserError(f"{metrics} has lost rows since the checkpoint: start again with resume=false")
    if saved.metrics_sum and saved.metrics_sum != environment.checksum(metrics, saved.metrics_size):
        raise UserError(f"{metrics} has changed since the checkpoint: start again with resume=false")
    return saved


def finished(this: Experiment, folder: Path) -> bool:
    """Say whether ``folder`` holds this run, finished; one of fewer rounds is its beginning.

    Raises
    ------
    UserError : when it holds another run, or one that left no checkpoint to go on from
    """
    told = environment.environment(folder)
    if told.get("status") != "finished":
        another = told.get("identity", this.identity()) != this.identity()
        if another and load(folder) is None and _has_trained(folder / "metrics.csv"):
            raise UserError(_another(folder / "environment.json"))
        return False
    if told.get("identity") == this.identity():
        if reason := environment.damage(folder):
            logger.warning(
                "%s: %s; the run starts again, from its checkpoint if it has one", folder, reason
            )
        return reason is None
    saved = load(folder)
    if saved is None or not _is_begun_by(this, saved):
        lacks = "missing" if saved is None else "another run's"
        raise UserError(
            _another(folder / "environment.json", f", or of fewer rounds whose {LATEST} is {lacks}")
        )
    return False


def _has_trained(metrics: Path) -> bool:
    """Say whether metrics.csv has a row of a round, which a new run would throw away."""
    lines = metrics.read_text(errors="replace").splitlines() if metrics.exists() else []
    return any(not line.startswith(("round,", "0,")) for line in lines)


def _has_rows(metrics: Path, count: int) -> bool:
    """Say whether metrics.csv has its first ``count`` bytes, and none of them lost to a fallen machine."""
    if environment.size(metrics) < count:
        return False
    with open(metrics, "rb") as file:
        return b"\0" not in file.read(count)


def _is_begun_by(this: Experiment, saved: Checkpoint) -> bool:
    """Say whether a checkpoint is one of this run, or the last of the same run with fewer rounds."""
    shorter = this.identity(min(saved.rounds or saved.server_round, this.settings.rounds))
    return saved.identity in (this.identity(), shorter)


def _another(path: Path, unless: str = "") -> str:
    return (
        f"{path} belongs to a run with another configuration or other versions{unless}: choose another "
        "folder (hydra.run.dir=...), or start again with resume=false"
    )
