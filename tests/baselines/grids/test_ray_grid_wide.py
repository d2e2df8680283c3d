"""The Ray grid on many processors, as many as Ray is told that there are."""

import time

import pytest

from helpers import toys

pytestmark = pytest.mark.slow


def test_a_fraction_of_a_gpu_each_and_eight_busy_at_once() -> None:
    """Processors and GPUs that Ray is told of: what is seen is who is sent what, not how fast."""
    with toys.cluster(cpus=8, gpus=2):
        grid = toys.grid(8, gpus=0.25)
        grid.send_and_receive(toys.messages(grid, {k: {"seconds": 8} for k in range(8)}), timeout=100)
        began = time.monotonic()
        replies = grid.send_and_receive(toys.messages(grid, {k: {"seconds": 4} for k in range(8)}))
        assert len(toys.node_counts(replies)) == 8
        assert time.monotonic() - began < 8 * 4 / 2  # one after another: 32 s
        assert len({toys.pid(reply) for reply in replies}) == 8
