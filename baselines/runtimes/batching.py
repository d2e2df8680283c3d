"""Whether the nodes that a process trains in a round train batched, and who has decided it.

Batched nodes compute each node's result to rounding (1e-5), one by one they compute it bit for bit. So the
clock decides only where no bits are promised: never on the CPU, and never with ``deterministic=true``,
unless the user asks for it by ``measured``. The choice is written down, and a resumed run keeps it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from logging import getLogger
from pathlib import Path
from typing import TYPE_CHECKING, Any

from baselines.errors import UserError

if TYPE_CHECKING:
    from baselines.experiment.experiment import Experiment

logger = getLogger("flwr")

MEASURED = "measured"
SMALL_MODEL = 1_000_000  # parameters, below which one node's steps leave an accelerator idle
AS_REQUESTED, ON_CPU = "as asked", "on the CPU auto keeps the results of every runtime, bit for bit"
LEAST = 0.95  # of the time one by one, which batched has to undercut: a tie keeps the bits


@dataclass(frozen=True)
class Choice:
    """How nodes train.

    Parameters
    ----------
    requested : what ``runtime.batch_clients`` says
    batched : what came of it
    why : in a few words
    seconds : of the shortened round that was measured, in either way; empty where none was
    """

    requested: bool | str
    batched: bool
    why: str
    seconds: Mapping[str, float] | None = None

    def describe(self) -> dict[str, Any]:
        """Return what environment.json says of it."""
        record = {"asked": self.requested, "batched": self.batched, "why": self.why}
        return {"batch_clients": record | ({"seconds": dict(self.seconds)} if self.seconds else {})}

    def say(self) -> "Choice":
        """Tell the user, where it is neither what was asked for nor what every run does; return itself."""
        if self.why not in (AS_REQUESTED, ON_CPU):
            way = "batched" if self.batched else "one by one"
            logger.info("runtime.batch_clients=%s: nodes train %s (%s)", self.requested, way, self.why)
        return self


def check(batch_clients: bool | str) -> None:
    """Refuse any other choice."""
    if batch_clients not in (True, False, "auto", MEASURED):
        raise ValueError(
            f"runtime.batch_clients={batch_clients} is unknown: expected auto, measured, true or false"
        )


def check_elsewhere(batch_clients: bool | str) -> None:
    """Refuse any other choice, and to measure, where nodes train in other processes."""
    check(batch_clients)
    if batch_clients == MEASURED:
        raise ValueError(
            "runtime.batch_clients=measured: only one process can measure it, and runtime=ray has many; set "
            "it to auto, true or false"
        )


def choice(requested: bool | str, overrides: str, folder: Path, sites: Mapping[str, str] | None) -> Choice:
    """Return the choice for a run in this process; it is measured where the clock may decide.

    Raises
    ------
    UserError : for ``measured`` where equal bytes are asked for
    """
    if isinstance(requested, bool):
        return Choice(requested, requested, AS_REQUESTED)
    from baselines.experiment.experiment import load as load_experiment

    experiment = load_experiment(overrides)
    if requested == MEASURED and experiment.deterministic:
        raise UserError(
            "runtime.batch_clients=measured lets the clock decide, and deterministic=true asks for equal "
            "bytes: set runtime.batch_clients to true or false"
        )
    if (earlier := _earlier(experiment, folder)) is not None:
        return earlier
    if requested == "auto" and (experiment.device.type == "cpu" or experiment.deterministic):
        return unmeasured(requested, experiment)
    return measured(requested, experiment, sites)


def unmeasured(requested: bool | str, experiment: "Experiment") -> Choice:
    """Return the choice that depends on the configuration and the kind of device alone."""
    if isinstance(requested, bool):
        return Choice(requested, requested, AS_REQUESTED)
    if experiment.device.type == "cpu":
        return Choice(requested, False, ON_CPU)
    size = sum(p.numel() for p in experiment.node_model.parameters())
    small = size < SMALL_MODEL
    return Choice(
        requested, small, f"{size:,} parameters are {'' if small else 'not '}below {SMALL_MODEL:,}"
    )


def measured(requested: bool | str, experiment: "Experiment", sites: Mapping[str, str] | None) -> Choice:
    """Return the way that takes less time here; one by one where nodes cannot be batched."""
    from .measuring import seconds_of

    seconds = seconds_of(experiment, sites)
    if isinstance(seconds, str):
        return Choice(requested, False, seconds)
    alone, together = seconds
    why = f"a shortened round takes {together:.3g} s batched, {alone:.3g} s one by one"
    return Choice(requested, together < LEAST * alone, why, {"one_by_one": alone, "batched": together})


def _earlier(experiment: "Experiment", folder: Path) -> Choice | None:
    """Return the choice of the run that is resumed, from its run folder; None where there is none."""
    from baselines.engine.checkpoint import LATEST
    from baselines.engine.environment import environment

    if not experiment.settings.resume or not (folder / LATEST).exists():
        return None
    record = environment(folder).get("batch_clients")
    if not isinstance(record, dict) or not isinstance(record.get("batched"), bool):
        return None
    return Choice(record.get("asked", ""), record["batched"], str(record.get("why")), record.get("seconds"))
