"""Fixtures that every test may use."""

import gc
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
# Ray gives its workers little of a busy machine (15), and this one is busy with the other tests.
os.environ.setdefault("RAY_worker_niceness", "0")
ROOT = Path(__file__).resolve().parents[1]
pytest.register_assert_rewrite("helpers")  # what fails there is shown as in a test


# Files whose tests wait long, one after another: they begin first, the longest of all before the others, so that
# none of them ends last.
LONGEST = (
    "test_deployed.py",
    "test_commands_run.py",
    "test_attacked_federation.py",
    "test_same_metrics.py",
    "test_by_hand.py",
    "test_cluster.py",
    "test_your_own.py",
    "test_main.py",
)

# What is collected stays to the end, a million objects, which Python would look through again and again.
gc.disable()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Look for garbage among what the tests make, and less often than Python does by itself."""
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)
    gc.enable()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the files that have none of the marks that ``-m "slow or exhaustive"`` asks for.

    Each worker imports each file that it collects.
    """
    marks = config.option.markexpr.split(" or ")
    if collection_path.suffix != ".py" or not all(map(str.isidentifier, marks)):
        return None
    text = collection_path.read_text(encoding="utf-8")
    return None if any(f"mark.{mark}" in text for mark in marks) else True


@pytest.hookimpl(tryfirst=True)  # before -m selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Take the mark ``exhaustive`` from the first case of each test, and let the longest files begin."""
    begun = set()
    for item in items:
        function = item.nodeid.partition("[")[0]
        if function not in begun:
            item.own_markers = [mark for mark in item.own_markers if mark.name != "exhaustive"]
        begun.add(function)
    rank = {name: k for k, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.path.name, len(LONGEST)))


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Use one torch thread, as runs do: results are equal to the bit only for equal threads."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def log_level() -> Iterator[None]:
    """Put the level back that a run on Ray, or a benchmark, has changed: other tests read the log."""
    logger = logging.getLogger("flwr")
    level = logger.level
    yield
    logger.setLevel(level)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Return a folder with real data sets (MNIST and more) or skip, saying where it was looked for."""
    candidates = [os.environ.get("FLORILEGIUM_DATA"), ROOT.parent / "shared" / "data"]
    folders = [Path(folder) for folder in candidates if folder]
    for folder in folders:
        if (folder / "MNIST" / "raw").is_dir():
            return folder
    pytest.skip(f"no MNIST in {' or '.join(map(str, folders))}")
