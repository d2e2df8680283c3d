"""Local training of a classifier, inline, beside a plain loop over the same clients on the same tensors."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from baselines.experiment import experiment

from . import runs
from .peers import pfl_research, present
from .plain import Loop
from .report import Row, compared
from .timing import Contenders, alternate
from .workload import Workload

MNIST = "dataset=mnist dataset.load.images.download=false partitioner=iid"


@dataclass(frozen=True)
class Classification(Workload):
    """Seconds of a round, inline.

    Parameters
    ----------
    setting : the overrides
    ways : {subject: (further overrides, goal beside the plain loop)}
    rounds : of a measurement; the first is not counted
    """

    setting: str
    ways: Mapping[str, tuple[str, float | None]]
    rounds: int = 3

    def measure(self, repeats: int, peers: bool) -> list[Row]:
        """Measure each way beside the plain loop and pfl-research."""
        others = present(self.name, [pfl_research(self.setting, rounds=self.rounds)], peers)
        setting, loop = f"{self.setting} device=cpu", "plain loop, cpu"
        goals = {f"{way}, cpu": goal for way, (_, goal) in self.ways.items()}
        runs_ = [runs.with_rounds(f"{setting} {more}", self.rounds) for more, _ in self.ways.values()]
        ours = {subject: partial(_seconds, each) for subject, each in zip(goals, runs_, strict=True)}
        limit = Loop(experiment.load(setting), self.rounds)
        contenders: Contenders = {**ours, loop: limit, **others}
        samples = alternate(contenders, repeats)
        beside = {way: {loop: goal, **dict.fromkeys(others)} for way, goal in goals.items()}
        return compared(self.name, "round", "s", samples, beside)


def _seconds(overrides: str) -> float:
    return runs.run(overrides).round
