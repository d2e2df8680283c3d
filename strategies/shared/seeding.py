"""One source of randomness: a result depends on the seed, never on the runtime or on order.

Every random decision draws from a generator of its own, named by (seed, round, partition, purpose).
"""

from enum import IntEnum

import numpy as np


class Purpose(IntEnum):
    """What random numbers are for. Append only: a changed number changes every result.

    A method outside this project takes numbers of its own, from 1000 on, which none of these will be.
    """

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
    MODEL_CHOICE = 18
    DISTILLATION = 19
    QUESTION = 20
    GUIDED_SELECTION = 21
    CLOCK = 22


def generator(
    seed: int, purpose: int, *, server_round: int = 0, partition_id: int = 0
) -> np.random.Generator:
    """Return the generator of one decision; all arguments are non-negative integers.

    Parameters
    ----------
    seed : the run's: ``self.seed`` of a strategy, ``update.seed`` of a personal method (which has the round
        and the node in it), ``seed: ${seed}`` in the YAML file of anything else
    purpose : a :class:`Purpose`, or of a method outside this project a number from 1000 on
    server_round, partition_id : what the decision is made for, 0 where it is not made for one
    """
    return np.random.default_rng([seed, server_round, partition_id, purpose])


def torch_seed(seed: int, purpose: int, *, server_round: int = 0, partition_id: int = 0) -> int:
    """Return a seed for ``torch.Generator.manual_seed``, in [0, 2**63)."""
    bits = np.random.PCG64([seed, server_round, partition_id, purpose])  # a generator takes twice the time
    return int(bits.random_raw()) >> 1
