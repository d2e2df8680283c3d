"""The Ray grid on many processors, as many as Ray is told that there are."""

import time

import pytest
import toys

pytestmark = [pytest.mark.runtime, pytest.mark.slow]


def test_a_fraction_of_a_gpu_each_and_forty_busy_at_once() -> None:
    """Processors and GPUs that Ray is told of: what is seen is who is sent what, not how fast."""
    with toys.cluster(cpus=40, gpus=4):
        grid = toys.grid(40, gpus=0.1)
        grid.send_and_receive(toys.messages(grid, {k: {"seconds": 20} for k in range(40)}), timeout=100)
        began = time.monotonic()
        replies = grid.send_and_receive(toys.messages(grid, {k: {"seconds": 5} for k in range(40)}))
        assert len(toys.said(replies)) == 40
        assert time.monotonic() - began < 40 * 5 / 2  # one after another: 200 s
        assert len({toys.pid(reply) for reply in replies}) == 40
