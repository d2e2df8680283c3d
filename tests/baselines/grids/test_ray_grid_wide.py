"""The Ray grid on many processors, as many as Ray is told that there are."""

import time

import pytest
import toys

pytestmark = [pytest.mark.runtime, pytest.mark.slow]


def test_a_fraction_of_a_gpu_each_and_sixteen_busy_at_once() -> None:
    """Processors and GPUs that Ray is told of: what is seen is who is sent what, not how fast."""
    with toys.cluster(cpus=16, gpus=2):
        grid = toys.grid(16, gpus=0.125)
        grid.send_and_receive(toys.messages(grid, {k: {"seconds": 8} for k in range(16)}), timeout=100)
        began = time.monotonic()
        replies = grid.send_and_receive(toys.messages(grid, {k: {"seconds": 5} for k in range(16)}))
        assert len(toys.said(replies)) == 16
        assert time.monotonic() - began < 16 * 5 / 2  # one after another: 80 s
        assert len({toys.pid(reply) for reply in replies}) == 16
