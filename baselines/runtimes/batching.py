"""Choose whether a process trains its nodes batched, and record why.

Batched nodes give each node's result to rounding (1e-5); one by one, nodes give it bit for bit. So ``auto``
measures neither on the CPU nor with ``deterministic=true``. ``choose_measured`` does on any device, but is refused
with ``deterministic=true``. The choice is recorded, and a resumed run keeps it.
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

MEASURED_CHOICE = "measured"
SMALL_MODEL = 1_000_000  # parameters, below which one node's steps leave an accelerator idle
REQUESTED_REASON, CPU_REASON = "as asked", "on the CPU auto keeps the results of every runtime, bit for bit"
MAX_TIME_RATIO = (
    0.95  # batched must take less than this share of the time one by one, so a tie keeps the bits
)


@dataclass(frozen=True)
class Choice:
    """How nodes train.

    Parameters
    ----------
    requested : the value of ``runtime.batch_clients``
    batched : whether nodes train batched
    why : the reason, in a few words
    seconds : of the measured shortened round, each way; None if none was measured
    """

    requested: bool | str
    batched: bool
    why: str
    seconds: Mapping[str, float] | None = None

    def describe(self) -> dict[str, Any]:
        """Return what environment.json records of it."""
        record = {"asked": self.requested, "batched": self.batched, "why": self.why}
        return {"batch_clients": record | ({"seconds": dict(self.seconds)} if self.seconds else {})}

    def say(self) -> "Choice":
        """Log the choice, unless it is as requested or the CPU's default; return itself."""
        if self.why not in (REQUESTED_REASON, CPU_REASON):
            way = "batched" if self.batched else "one by one"
            logger.info("runtime.batch_clients=%s: nodes train %s (%s)", self.requested, way, self.why)
        return self


def check(batch_clients: bool | str) -> None:
    """Refuse any other choice."""
    if batch_clients not in (True, False, "auto", MEASURED_CHOICE):
        raise ValueError(
            f"runtime.batch_clients={batch_clients} is unknown: expected auto, measured, true or false"
        )


def check_elsewhere(batch_clients: bool | str) -> None:
    """Refuse any other choice, and ``choose_measured``, where nodes train in other processes."""
    check(batch_clients)
    if batch_clients == MEASURED_CHOICE:
        raise ValueError(
            "runtime.batch_clients=measured: only one process can measure it, and runtime=ray has many; set "
            "it to auto, true or false"
        )


def choose_batching(
    requested: bool | str, overrides: str, folder: Path, sites: Mapping[str, str] | None
) -> Choice:
    """Return the choice for a run in this process, measured where the module's docstring says so.

    Raises
    ------
    UserError : for ``choose_measured`` with ``deterministic=true``
    """
    if isinstance(requested, bool):
        return Choice(requested, requested, REQUESTED_REASON)
    from baselines.experiment.experiment import load as load_experiment

    experiment = load_experiment(overrides)
    if requested == MEASURED_CHOICE and experiment.deterministic:
        raise UserError(
            "runtime.batch_clients=measured lets the clock decide, and deterministic=true asks for equal "
            "bytes: set runtime.batch_clients to true or false"
        )
    if (earlier := _earlier(experiment, folder)) is not None:
        return earlier
    if requested == "auto" and (experiment.device.type == "cpu" or experiment.deterministic):
        return choose_unmeasured(requested, experiment)
    return choose_measured(requested, experiment, sites)


def choose_unmeasured(requested: bool | str, experiment: "Experiment") -> Choice:
    """Return the choice that depends only on the configuration and the type of device."""
    if isinstance(requested, bool):
        return Choice(requested, requested, REQUESTED_REASON)
    if experiment.device.type == "cpu":
        return Choice(requested, False, CPU_REASON)
    size = sum(p.numel() for p in experiment.node_model.parameters())
    small = size < SMALL_MODEL
    return Choice(
        requested, small, f"{size:,} parameters are {'' if small else 'not '}below {SMALL_MODEL:,}"
    )


def choose_measured(
    requested: bool | str, experiment: "Experiment", sites: Mapping[str, str] | None
) -> Choice:
    """Return the faster way on this machine; one by one if nodes cannot be batched."""
    from .measuring import seconds_of

    seconds = seconds_of(experiment, sites)
    if isinstance(seconds, str):
        return Choice(requested, False, seconds)
    one_by_one, batched = seconds
    why = f"a shortened round takes {batched:.3g} s batched, {one_by_one:.3g} s one by one"
    return Choice(
        requested,
        batched < MAX_TIME_RATIO * one_by_one,
        why,
        {"one_by_one": one_by_one, "batched": batched},
    )


def _earlier(experiment: "Experiment", folder: Path) -> Choice | None:
    """Return the choice of a resumed run, from its run folder; None if there is none."""
    from baselines.engine.checkpoint import LATEST_CHECKPOINT
    from baselines.engine.environment import read_environment

    if not experiment.settings.resume or not (folder / LATEST_CHECKPOINT).exists():
        return None
    record = read_environment(folder).get("batch_clients")
    if not isinstance(record, dict) or not isinstance(record.get("batched"), bool):
        return None
    return Choice(record.get("asked", ""), record["batched"], str(record.get("why")), record.get("seconds"))
