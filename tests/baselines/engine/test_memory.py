"""Large tensors lie in huge pages."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import resource
import baselines
import torch
def pages():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
torch.ones(10)
before = pages()
torch.ones(25_000_000)
print(pages() - before)
"""
SWITCH = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def faults(enabled: str | None) -> int:
    """Return how many pieces of fresh memory 100 MB come in."""
    environment = {k: v for k, v in os.environ.items() if k != "THP_MEM_ALLOC_ENABLE"}
    if enabled is not None:
        environment["THP_MEM_ALLOC_ENABLE"] = enabled
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env=environment,
    )
    return int(done.stdout)


@pytest.mark.slow
@pytest.mark.skipif(
    not SWITCH.exists() or "[madvise]" not in SWITCH.read_text(),
    reason="no huge pages on request here",
)
def test_fresh_memory_comes_in_huge_pages_unless_told_otherwise() -> None:
    small = 4 * 25_000_000 // 4096
    assert faults("0") > 0.9 * small
    assert faults(None) < 0.1 * small
