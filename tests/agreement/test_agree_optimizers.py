"""Every client optimiser, and every way to drive one: epochs or steps, clipped, decayed, kept."""

import pytest

from baselines.experiment.overrides import CONF, SHARED
from helpers.agreement.settings import CLIENTS, DRIVEN
from helpers.agreement.ways import (
    BATCHED,
    CAPTURED,
    CAPTURED_BATCH,
    ONE_BY_ONE,
    RECORDED,
    WAYS,
    Way,
    compare,
)


@pytest.mark.exhaustive
@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("client", CLIENTS)
def test_every_optimizer(client: str, way: Way) -> None:
    overrides, batches = CLIENTS[client]
    compare(overrides, way, batches=batches)


def test_no_optimizer_is_missing() -> None:
    others = {*SHARED, "local", "keep_trace"}  # whose steps are its own: tests/clients/test_keep_trace.py
    files = {
        path.stem for group in ("client_optimizer", "client") for path in (CONF / group).glob("*.yaml")
    }
    assert CLIENTS.keys() == files - others


@pytest.mark.exhaustive
@pytest.mark.parametrize("way", [RECORDED, BATCHED, CAPTURED, CAPTURED_BATCH], ids=str)
@pytest.mark.parametrize("case", DRIVEN)
def test_every_way_to_drive_one(case: str, way: Way) -> None:
    overrides, batches = DRIVEN[case]
    compare(overrides, way, batches=batches, rounds=3)


@pytest.mark.exhaustive
@pytest.mark.parametrize("way", [*ONE_BY_ONE, BATCHED], ids=str)
def test_nodes_of_very_different_sizes(way: Way) -> None:
    """The Dirichlet distribution leaves some nodes a batch or two, and others many."""
    compare("dataset=images partitioner=dirichlet partitioner.alpha=0.1 num_nodes=5 model=mlp", way)
