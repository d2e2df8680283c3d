"""Arrows go one way: launchers -> engine -> experiment -> clients -> strategies, and never in a circle."""

from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from helpers.source import FILES, MODULES, PACKAGES, imported, modules, name_of

OURS = {*PACKAGES, "conf", "tests"}
SHARED = "strategies.shared"
PARTS = (SHARED, "strategies.parts")
BUILT = ("clients", "strategies", "baselines.errors")  # what an experiment is made of
EXPERIMENT = (
    *BUILT,
    *(f"baselines.{name}" for name in ("experiment", "datasets", "partitioners", "models")),
)
ENGINE = (*EXPERIMENT, "baselines.engine", "baselines.grids")
REPORTS = (*ENGINE, "baselines.reports")
MAY = {  # folder: which of our modules it may import; the longest folder that a file lies in counts
    "strategies": ("strategies",),
    "strategies/parts": PARTS,
    "strategies/core": (*PARTS, "strategies.core"),
    "strategies/shared": (SHARED,),
    "clients": ("clients", SHARED),
    "baselines": ("baselines", "clients", "strategies"),
    "baselines/datasets": (*BUILT, "baselines.datasets"),
    "baselines/partitioners": (*BUILT, "baselines.partitioners"),
    "baselines/models": (*BUILT, "baselines.models"),
    "baselines/experiment": EXPERIMENT,
    "baselines/site": (*EXPERIMENT, "baselines.site"),
    "baselines/engine": ENGINE,
    "baselines/reports": (*REPORTS, "baselines.results"),
    "baselines/grids": ("baselines.grids", "baselines.errors", SHARED),
    "baselines/runtimes": (*ENGINE, "baselines.grids", "baselines.runtimes", "baselines.apps"),
    "baselines/federation": (
        *(*ENGINE, "baselines.apps", "baselines.runtimes", "baselines.site"),
        *("baselines.federation", "baselines.help"),
    ),
    "baselines/reproduce": (*REPORTS, "baselines.help", "baselines.reproduce"),
    "baselines/bench": ("baselines", "clients", "strategies"),
}
NEVER = {"strategies": {"hydra", "omegaconf"}, "clients": {"hydra", "omegaconf"}, "baselines": set[str]()}


def folder_of(path: Path) -> str:
    return max((folder for folder in MAY if name_of(path).startswith(f"{folder}/")), key=len)


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_imports_only_what_it_may(path: Path) -> None:
    names = list(imported(path))
    ours = [name for name in names if name.split(".")[0] in OURS]
    may = MAY[folder_of(path)]
    assert [name for name in ours if not f"{name}.".startswith(tuple(f"{one}." for one in may))] == []
    assert [name for name in names if name.split(".")[0] in NEVER[name_of(path).split("/")[0]]] == []


def test_no_circle() -> None:
    graph = {name: set(modules(path)) - {name} for name, path in MODULES.items()}
    assert sum(map(len, graph.values())) > 300  # they are read
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as circle:
        pytest.fail(" -> ".join(circle.args[1]))


def test_nothing_imports_the_launchers() -> None:
    """A data set, a model or a strategy works without what runs it."""
    below = [path for path in FILES if folder_of(path) not in ("baselines", "baselines/bench")]
    assert [name_of(path) for path in below if "baselines.run" in modules(path)] == []
