"""Rounds on an accelerator, beside the hand-written round of ``captured.py`` on the same data there."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

import torch

from baselines.experiment import experiment

from . import runs
from .captured import Captured
from .peers import flower, pfl_research, present
from .report import Row, compared
from .timing import Contenders, Spread, alternate
from .workload import Workload

LIMIT = "hand-written round"
WAYS: tuple[tuple[str, str, torch.dtype | None, bool], ...] = (  # its name, overrides, type; has it a goal?
    ("", "", None, True),
    (", bfloat16", "autocast=bfloat16", torch.bfloat16, False),
)


@dataclass(frozen=True)
class DeviceRound(Workload):
    """Seconds of a round on a device.

    Parameters
    ----------
    setting : the overrides, with the device
    together : whether the hand-written round has all nodes take a step at once, or one after another
    rounds : of a measurement; the first is not counted
    at_most : seconds, of one H100; None without such a goal
    beside : times the hand-written round; None without such a goal
    """

    setting: str
    together: bool
    rounds: int
    at_most: float | None = None
    beside: float | None = None

    def measure(self, repeats: int, peers: bool) -> list[Row]:
        """Measure ours, in single precision and in bfloat16, each beside the hand-written round in it."""
        others = [make(self.setting, rounds=self.rounds) for make in (pfl_research, flower)]
        peers_ = present(self.name, others, peers)
        contenders: Contenders = dict(peers_)
        goals: dict[str, dict[str, float | None]] = {}
        for way, more, autocast, goal in WAYS:
            ours, limit = f"ours{way}", f"{LIMIT}{way}"
            goals[ours] = {limit: self.beside if goal else None, **dict.fromkeys(peers_)}
            contenders[ours] = partial(_seconds, runs.with_rounds(f"{self.setting} {more}", self.rounds))
            contenders[limit] = Captured(
                experiment.load(self.setting), self.rounds, self.together, autocast
            )
        samples = alternate(contenders, repeats)
        rows = compared(self.name, "round", "s", samples, goals)
        if self.at_most is None:
            return rows
        return [
            Row(self.name, "ours", "round", "s", Spread.of(samples["ours"]), at_most=self.at_most),
            *rows,
        ]


@dataclass(frozen=True)
class Beside(Workload):
    """Seconds of a round in one way beside another way.

    Parameters
    ----------
    setting : the overrides, with the device
    ways : {subject: further overrides}; the first stands beside the second
    rounds : of a measurement; the first is not counted
    at_most : the goal for the ratio
    """

    setting: str
    at_most: float
    rounds: int
    ways: Mapping[str, str] = field(default_factory=dict)

    def measure(self, repeats: int, peers: bool) -> list[Row]:
        """Measure both ways by turns."""
        ours: Contenders = {
            subject: partial(_seconds, runs.with_rounds(f"{self.setting} {more}", self.rounds))
            for subject, more in self.ways.items()
        }
        first, second = ours
        return compared(self.name, "round", "s", alternate(ours, repeats), {first: {second: self.at_most}})


def _seconds(overrides: str) -> float:
    return runs.run(overrides).round
