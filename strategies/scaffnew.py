"""Scaffnew: nodes communicate in a random share of the steps, and variates correct their drift.

Mishchenko, Malinovsky, Stich, Richtarik: *ProxSkip: Yes! Local Gradient Steps Provably Lead to Communication
Acceleration! Finally!*, ICML 2022, Algorithm 2. Node k keeps a variate h_k, which starts at 0.

    node:    y <- y - gamma (g_k(y) - h_k)               in each of its steps, from w[t] to w[t,k]
    server:  w[t+1] = w[t] - (1/N) sum_k Delta_k         the plain mean of all N nodes' w[t,k]
    node:    h_k <- h_k + (p / gamma) (w[t+1] - w[t,k])

After each step the paper's nodes communicate with probability p, all at once. Deviation: here each round ends
with its communication. Its number of steps is drawn from the geometric distribution of p, by seed and round,
and sent to all nodes; ``client.local_epochs`` and ``client.local_steps`` do not count. A node renews h_k when
it gets w[t+1], at the start of its next round; nothing else is sent.

The h_k sum to 0, as they must at the optimum, only where w[t+1] is that mean. So other parts are refused, and
a round without a sound reply of every node takes no step: each node receives a message, and leaves h_k as it was
(:mod:`clients.methods.scaffnew`). Reduction: the first round, where all h_k are 0, is FedAvg with uniform
weights; with p = 1 every round is, with one local step, to rounding.
"""

from dataclasses import dataclass
from typing import ClassVar

from flwr.app import ArrayRecord, ConfigRecord, ConfigScalar, RecordDict
from torch import Tensor

from .core.stateful_clients import StatefulClientsStrategy
from .parts.aggregation import Mean
from .parts.mask import NoMask
from .parts.privacy import NoPrivacy
from .parts.server_optimizer import Identity
from .parts.step_size import Constant
from .parts.updates import NoStep, Updates
from .parts.weighting import Uniform, Weighting
from .shared import protocol
from .shared.checks import require
from .shared.compression import NoCompression
from .shared.seeding import Purpose, generator

REQUIRED_PARTS = {  # by part: the one that makes the step a plain mean, and its option
    "weighting": (Uniform, "uniform"),
    "aggregation": (Mean, "mean"),
    "server_optimizer": (Identity, "identity"),
    "mask": (NoMask, "none"),
    "step_size": (Constant, "constant"),
    "privacy": (NoPrivacy, "none"),
    "compression": (NoCompression, "none"),
}
REQUIREMENT = "under strategy=scaffnew, which needs the plain mean of all nodes"


@dataclass(kw_only=True, eq=False)
class Scaffnew(StatefulClientsStrategy):
    """FedAvg of all nodes with variates and a random number of local steps; needs this project's ClientApp.

    Parameters
    ----------
    probability : p, of communication after a step, above 0, at most 1: a round has 1 / p steps on average
    """

    sums: ClassVar[tuple[str, ...] | None] = ()
    weighting: Weighting = Uniform()
    probability: float = 0.1

    def __post_init__(self) -> None:
        """Refuse a p outside (0, 1], and what would leave the sum of the variates other than 0."""
        super().__post_init__()
        require(0 < self.probability <= 1, "strategy.probability", self.probability, "above 0, at most 1")
        for name, (kind, option) in REQUIRED_PARTS.items():
            part = type(getattr(self, name))
            require(part is kind, name, part.__name__, f"{option} {REQUIREMENT}")
        eta = getattr(self.step_size, "eta", None)
        require(eta == 1, "step_size.eta", eta, f"1 {REQUIREMENT}")
        count, share = self.nodes_per_round, self.fraction_train
        require(count in (None, self.num_nodes), "nodes_per_round", count, f"null {REQUIREMENT}")
        require(share in (None, 1), "fraction_train", share, f"None {REQUIREMENT}")
        require(self.dropout == 0, "participation.dropout", self.dropout, f"0 {REQUIREMENT}")

    def draw_local_steps(self, server_round: int) -> int:
        """Return how many steps each node takes in a round: the first after which they communicate."""
        draws = generator(self.seed, Purpose.LOCAL_STEPS, server_round=server_round)
        return int(draws.geometric(self.probability))

    def train_config(self) -> dict[str, ConfigScalar]:
        return {**super().train_config(), protocol.COMMUNICATION_PROBABILITY: float(self.probability)}

    def make_content(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord) -> RecordDict:
        steps = self.draw_local_steps(server_round)
        return super().make_content(
            server_round, arrays, ConfigRecord({**config, protocol.LOCAL_STEPS: steps})
        )

    def required_reply_keys(self) -> dict[str, str]:
        return super().required_reply_keys() | {protocol.KEPT: "does not keep Scaffnew's variate"}

    def take_step(self, server_round: int, updates: Updates) -> tuple[dict[str, float], Tensor]:
        replies, nodes = len(updates.partition_ids), self.population_size()
        if replies < nodes:
            raise NoStep(f"{replies} sound replies, and Scaffnew needs those of all {nodes} nodes")
        metrics, weights = super().take_step(server_round, updates)
        self.count_changes(server_round, updates.partition_ids)
        return metrics, weights

    def clear_sum(self) -> None:
        """The server keeps no sum; the nodes begin again from 0."""
