"""Stragglers: nodes that do less than the others in a round, since they are slow.

A straggler's epochs (or steps) are uniform from ``least_work`` to all of them, as in FedProx' experiments
(Li et al., MLSys 2020, section 5.2). Who straggles with probability p is who would drop out with it
(``participation.dropout``), so that FedAvg that drops its stragglers and FedProx that keeps them are
compared on the same ones. Where nodes also drop out, with q < p, a share p - q comes and does less.
A probability of 0 is local training as it was.
"""

from strategies.shared.checks import require, require_count
from strategies.shared.seeding import Purpose, generator


def check(probability: float, least_work: int, unit: str, full: int) -> None:
    """Refuse what is no probability, and stragglers that could do no less than the others."""
    require(0 <= probability <= 1, "client.stragglers", probability, "in [0, 1]")
    require_count("client.least_work", least_work)
    if probability and least_work >= full:
        raise ValueError(
            f"client.stragglers={probability} with client.{unit}={full} and "
            f"client.least_work={least_work}: nobody could do less; set {unit} above least_work"
        )


def work_of(
    probability: float, least_work: int, full: int, seed: int, server_round: int, partition_id: int
) -> int:
    """Return how many of ``full`` epochs, or steps, a node takes in a round."""
    draws = generator(seed, Purpose.AVAILABILITY, server_round=server_round, partition_id=partition_id)
    straggles = draws.random() < probability
    return int(draws.integers(least_work, full, endpoint=True)) if straggles else full
