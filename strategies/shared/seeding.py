"""One source of randomness: a result depends on the seed, never on the runtime or on order.

Every random decision draws from a generator of its own, named by (seed, round, partition, purpose).
"""

from enum import IntEnum

import numpy as np


class Purpose(IntEnum):
    """What random numbers are for. Append only: a changed number changes every result."""

    INITIAL_MODEL = 0
    PARTITION = 1
    NODE_SPLIT = 2
    SAMPLE_NODES = 3
    LOCAL_TRAINING = 4
    VALIDATION = 5
    COLOUR = 6
    NODE_COLOUR = 7
    ATTACK = 8
    PRIVACY_NOISE = 9
    AVAILABILITY = 10
    NODE_MODEL = 11
    COMPRESSION = 12
    HEAD = 13
    META = 14
    FOREIGN = 15
    EVALUATING_NODES = 16
    LOCAL_STEPS = 17
    QUESTION = 18
    GUIDED_SELECTION = 19


def generator(
    seed: int, purpose: Purpose, *, server_round: int = 0, partition_id: int = 0
) -> np.random.Generator:
    """Return the generator of one decision; all arguments are non-negative integers."""
    return np.random.default_rng([seed, server_round, partition_id, purpose])


def torch_seed(seed: int, purpose: Purpose, *, server_round: int = 0, partition_id: int = 0) -> int:
    """Return a seed for ``torch.Generator.manual_seed``, in [0, 2**63)."""
    bits = np.random.PCG64([seed, server_round, partition_id, purpose])  # a generator takes twice the time
    return int(bits.random_raw()) >> 1
