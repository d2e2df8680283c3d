"""Resuming: may a run be saved, is it finished, and what does it go on from?"""

import logging
from pathlib import Path

import yaml  # type: ignore[import-untyped]

from baselines.errors import UserError
from baselines.experiment.choices import leaves
from baselines.experiment.experiment import Experiment
from baselines.experiment.identity import BESIDE

from . import environment
from .checkpoint import LATEST, Checkpoint, load

logger = logging.getLogger("flwr")
MOST_NAMED = 4  # settings in a message


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


def protect(this: Experiment, folder: Path) -> None:
    """Raise ``UserError`` where a run would be written over that nobody has said to give up."""
    if this.settings.resume is None and _has_trained(folder / "metrics.csv"):
        raise UserError(
            f"{folder} holds a run: resume=true leaves it alone or continues it, resume=false writes over "
            "it; or choose another folder (hydra.run.dir=..., in a sweep hydra.sweep.dir and .subdir, "
            "of submit --output)"
        )


def to_resume(this: Experiment, folder: Path, gives_node_states: bool) -> Checkpoint | None:
    """Return what ``resume=true`` continues from; None to start from the beginning.

    Raises
    ------
    UserError : when what is there belongs to another run, or lacks what this one needs
    """
    check(this, gives_node_states)
    protect(this, folder)
    saved = load(folder) if this.settings.resume else None
    if saved is None:
        return None
    if not _is_begun_by(this, saved):
        raise UserError(_another(this, folder, LATEST))
    if this.nodes_remember and saved.nodes is None:
        raise UserError(f"{folder / LATEST} lacks the node states: start again with resume=false")
    metrics = folder / "metrics.csv"
    if not _has_rows(metrics, saved.metrics_size):
        raise UserError(f"{metrics} has lost rows since the checkpoint: start again with resume=false")
    if saved.metrics_sum and saved.metrics_sum != environment.checksum(metrics, saved.metrics_size):
        raise UserError(f"{metrics} has changed since the checkpoint: start again with resume=false")
    _name_changed(this, folder)
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
            raise UserError(_another(this, folder, "environment.json"))
        return False
    if told.get("identity") == this.identity():
        if reason := environment.damage(folder):
            logger.warning(
                "%s: %s; the run starts again, from its checkpoint if it has one", folder, reason
            )
        else:
            _name_changed(this, folder)
        return reason is None
    saved = load(folder)
    if saved is None or not _is_begun_by(this, saved):
        lacks = "missing" if saved is None else "another run's"
        raise UserError(
            _another(this, folder, "environment.json", f", or of fewer rounds whose {LATEST} is {lacks}")
        )
    return False


def _name_changed(this: Experiment, folder: Path) -> None:
    """Log which packages of the user's own are not what they were when the run began.

    Most changes leave every number as it was: whether this one does is for the user to say.
    """
    then = environment.environment(folder).get("own_sources", {})
    changed = [name for name, now in this.own_sources.items() if then.get(name, now) != now]
    if changed:
        logger.warning("%s: %s has changed since; resume=false starts again", folder, ", ".join(changed))


def _has_trained(metrics: Path) -> bool:
    """Say whether metrics.csv has a row of a round, which a new run would throw away."""
    if not metrics.exists():
        return False
    with open(metrics, errors="replace") as lines:
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


def _another(this: Experiment, folder: Path, name: str | Path, unless: str = "") -> str:
    found = _differing(this, folder)
    named = ", ".join(found[:MOST_NAMED] + ["..."] * (len(found) > MOST_NAMED))
    differs = f"another configuration ({named})" if found else "another configuration or other versions"
    return (
        f"{folder / name} belongs to a run with {differs}{unless}: choose another folder "
        "(hydra.run.dir=..., of submit --output), or start again with resume=false"
    )


def _differing(this: Experiment, folder: Path) -> list[str]:
    """Return the settings in which the folder's configuration is another; none where it cannot be read."""
    try:
        settings = yaml.safe_load((folder / "config.yaml").read_text())
    except (OSError, ValueError, yaml.YAMLError):
        return []
    if not isinstance(settings, dict):
        return []
    there, here = leaves(settings), leaves(yaml.safe_load(this.configuration()))
    keys = (key for key in here | there if key.partition(".")[0] not in BESIDE)
    return [key for key in keys if here.get(key) != there.get(key)]
