"""Random numbers: what decides them, and that their names never change."""

import numpy as np
import pytest

from strategies.shared.seeding import Purpose, generator, torch_seed

PURPOSES = (
    "INITIAL_MODEL",
    "PARTITION",
    "NODE_SPLIT",
    "SAMPLE_NODES",
    "LOCAL_TRAINING",
    "VALIDATION",
    "COLOUR",
    "NODE_COLOUR",
    "ATTACK",
)


def test_a_purpose_keeps_its_number() -> None:
    """A changed number changes every result that has been published."""
    assert {name: Purpose[name].value for name in PURPOSES} == dict(zip(PURPOSES, range(9), strict=True))


def test_a_generator_is_named_by_seed_round_partition_and_purpose() -> None:
    actual = generator(5, Purpose.ATTACK, server_round=2, partition_id=3).random(4)
    assert actual.tolist() == np.random.default_rng([5, 2, 3, 8]).random(4).tolist()
    plain = generator(5, Purpose.PARTITION).random(4)
    assert plain.tolist() == np.random.default_rng([5, 0, 0, 1]).random(4).tolist()


@pytest.mark.parametrize("seed", [*range(20), 2**31, 2**32, 2**32 + 5, 2**63 - 1])
def test_a_seed_for_torch_is_drawn_from_all_that_torch_takes(seed: int) -> None:
    expected = np.random.default_rng([seed, 1, 0, 4]).integers(2**63, dtype=np.uint64)
    assert torch_seed(seed, Purpose.LOCAL_TRAINING, server_round=1) == int(expected) < 2**63
