"""Memory that is freed stays at hand."""

import platform
import subprocess
import sys

import pytest

SCRIPT = """
import resource, sys
import torch
from baselines.memory import keep_freed_memory
if sys.argv[1] == "kept":
    keep_freed_memory()
def pages():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
torch.ones(50_000_000)
before = pages()
torch.ones(50_000_000)
print(pages() - before)
"""


def faults(how: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, how], capture_output=True, text=True, check=True, timeout=60
    )
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_a_freed_tensors_pages_serve_the_next() -> None:
    pages = 4 * 50_000_000 // 4096
    assert faults("returned") > 0.9 * pages  # the test would notice if there were nothing to keep
    assert faults("kept") < 0.01 * pages
