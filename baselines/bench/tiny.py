"""tiny: FedExP's synthetic linear regression, where every round is overhead.

Limit: the 20 nodes' 20 gradient steps as a loop of ``addmm_``, and FedExP's server step by hand.
"""

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from baselines.experiment import experiment
from baselines.experiment.experiment import Experiment

from .peers import flower, pfl_research, present
from .plain import Client
from .report import Row, Workload, compared
from .timing import Contenders, Spread, alternate, round_seconds, run_experiment, with_rounds

SETTING = "experiment=fedexp/synthetic strategy=fedexp step_size.epsilon=0 strategy.average_last=1"
GOAL = 0.015  # seconds a round where the loop takes 3.2 ms
LOOP = GOAL / 0.0032  # the same as a ratio, for other machines
TENTH = 0.1  # of Flower on Ray
WAYS = {
    "inline, nodes together": "runtime.batch_clients=true",
    "inline, nodes together, 2 threads": "runtime.batch_clients=true threads=2",
    "inline, one by one": "runtime.batch_clients=false",
}
RAY = "ray, 2 workers"
ON_RAY = "runtime=ray runtime.cpus=2"
RAY_GOAL, RAY_SHARE = 0.035, 0.2  # seconds; of Flower on Ray


@dataclass(frozen=True)
class Tiny(Workload):
    """Seconds of a round, inline in three ways, and on Ray.

    Parameters
    ----------
    rounds : of a measurement; the first is not counted
    setting : the overrides
    """

    rounds: int = 100
    setting: str = SETTING

    def measure(self, repeats: int, peers: bool) -> list[Row]:
        """Measure each way beside the loop of ``addmm_`` and beside FedAvg of other frameworks."""
        this = experiment.load(self.setting)
        on_ray, in_pfl = (make(self.setting, quickstart, rounds=20) for make in (flower, pfl_research))
        others = present(self.name, [on_ray, in_pfl], peers)
        ours = {way: partial(self._seconds, more) for way, more in WAYS.items()}
        ours[RAY] = partial(self._seconds, ON_RAY)
        contenders: Contenders = {**ours, "loop of addmm_": Addmm(this, self.rounds), **others}
        samples = alternate(contenders, repeats)
        goals = {"loop of addmm_": LOOP, on_ray.name: TENTH}
        beside = {name: goals.get(name) for name in ("loop of addmm_", *others)}
        alone = [Row(self.name, way, "round", "s", Spread.of(samples[way]), at_most=GOAL) for way in WAYS]
        alone.append(Row(self.name, RAY, "round", "s", Spread.of(samples[RAY]), at_most=RAY_GOAL))
        engine: dict[str, float | None] = {name: RAY_SHARE for name in others if name == on_ray.name}
        goals_of = dict.fromkeys(WAYS, beside) | {RAY: engine}
        return [*alone, *compared(self.name, "round", "s", samples, goals_of)]

    def _seconds(self, more: str) -> float:
        return run_experiment(with_rounds(f"{self.setting} {more}", self.rounds)).round


def quickstart(this: Experiment, partition_id: int) -> Client:
    """Return the client of the plain loop, with this problem's loss."""
    inputs, targets = this.node(partition_id).train.batch(slice(None), this.device)
    return Client(inputs, targets, this.training.lr, None, this.training.local_steps, _loss)


def _loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return 0.5 * (outputs - targets).square().sum()


class Addmm:
    """FedExP on the synthetic problem, written by hand.

    Parameters
    ----------
    this : whose data and hyper-parameters it takes
    rounds : how many to run in a measurement; the first is not counted
    """

    def __init__(self, this: Experiment, rounds: int) -> None:
        nodes = [this.node(k).train.batch(slice(None), this.device) for k in range(this.settings.num_nodes)]
        self.problems = [(a, a.T.contiguous(), b) for a, b in nodes]
        self.lr = this.training.lr
        self.steps = this.training.local_steps
        self.rounds = rounds
        self.w = torch.zeros(nodes[0][0].shape[1], 1, dtype=nodes[0][0].dtype)

    def __call__(self) -> float:
        """Return the seconds of a round: the median of all but the first."""
        torch.set_num_threads(1)
        self.w.zero_()
        return round_seconds(self._round, self.rounds)

    def _round(self) -> None:
        moved = torch.empty(len(self.problems), *self.w.shape, dtype=self.w.dtype)
        for (a, transposed, b), w in zip(self.problems, moved, strict=True):
            w.copy_(self.w)
            for _ in range(self.steps or 1):
                w.addmm_(transposed, torch.addmm(b, a, w, beta=-1), alpha=-self.lr)
        deltas = (self.w - moved).flatten(1)
        mean = deltas.mean(0)
        eta = max(1.0, float(deltas.square().sum(1).mean() / (2 * mean.square().sum())))
        self.w.view(-1).sub_(mean, alpha=eta)
