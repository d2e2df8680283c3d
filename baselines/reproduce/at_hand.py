"""At hand: the runs whose data set is here; the others would begin only to fail."""

import shlex
from collections import Counter
from collections.abc import Sequence

from rich.console import Console

from baselines.errors import UserError
from baselines.experiment.experiment import Experiment

from .plan import Trial


def at_hand(trials: Sequence[Trial], out: Console) -> list[Trial]:
    """Return the trials whose data set can be loaded; say how many others there are, and why.

    Raises
    ------
    UserError : where none can be
    """
    whys: dict[tuple[str, ...], str] = {}  # of a cell: composing a configuration takes a fifth of a second
    lacks: dict[str, str] = {}  # of a data set: the hub alone is asked for half a minute
    for trial in trials:
        if trial.cell.overrides not in whys:
            whys[trial.cell.overrides] = _why_not(trial, lacks)
    found = [trial for trial in trials if not whys[trial.cell.overrides]]
    for why, count in Counter(whys[trial.cell.overrides] for trial in trials).items():
        if why and not found:
            raise UserError(why)
        if why:
            out.print(f"{count} run{'s' * (count > 1)} cannot begin: {why}")
    return found


def _why_not(trial: Trial, lacks: dict[str, str]) -> str:
    """Return what is wrong with the data set; nothing where all is well, or where more than it is wrong."""
    this = Experiment(shlex.join(trial.overrides))
    try:
        name = this.kind_of_data
    except UserError:  # the run itself says so
        return ""
    if name not in lacks:
        lacks[name] = ""
        try:
            this.dataset  # noqa: B018 - loads it
        except UserError as error:
            lacks[name] = str(error)
    return lacks[name]
