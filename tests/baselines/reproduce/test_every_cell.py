"""Every override of the papers' tables composes with every other that it meets there, and all is built."""

import shlex
from collections.abc import Iterator
from functools import cache
from itertools import combinations_with_replacement

import pytest
import torch
from hydra import compose
from omegaconf import OmegaConf

from baselines.datasets import Dataset
from baselines.experiment import config
from baselines.experiment.data import load_dataset
from baselines.experiment.experiment import Experiment
from baselines.experiment.preflight import check
from baselines.partitioners import Partitioner
from baselines.reproduce import paper_tables
from baselines.reproduce.paper_tables import Cell, PaperTable
from clients import Classification, LocalTraining, Normalize
from strategies import Grouped, PseudoGradientStrategy

TABLES = [table for paper in paper_tables.papers() for table in paper_tables.tables(paper).values()]
ROWS = 6_000
WRITERS = 3_238  # as many as FEMNIST has, where the data set is not made for a number of nodes


def name_of(table: PaperTable) -> str:
    return f"{table.paper}/{table.name}"


@cache
def sample(shape: tuple[int, ...], classes: int, writers: int) -> Dataset:
    """Return blank images with every label and many writers."""
    labels = torch.arange(ROWS) % classes
    inputs = torch.zeros((ROWS, *shape), dtype=torch.uint8)
    owners = (torch.arange(ROWS) % writers).numpy()
    normalize = Normalize((0.0,) * shape[0], (1.0,) * shape[0])
    return Dataset(inputs, labels, inputs, labels, Classification(), normalize, owners=owners)


@pytest.fixture
def small_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a small sample in the place of every image set."""
    real = load_dataset

    def dataset(yaml: str) -> Dataset:
        cfg = OmegaConf.create(yaml)
        if cfg.num_classes == 1:  # the synthetic problem is small itself
            return real(yaml)
        return sample(tuple(cfg.shape), cfg.num_classes, cfg.load.get("num_nodes", WRITERS))

    monkeypatch.setattr("baselines.experiment.data.load_dataset", dataset)


def experiment_of(cell: Cell) -> Experiment:
    overrides = list(cell.overrides)
    if config.load(overrides[0]).validation_size:  # the experiment's; composing takes a third of a second
        overrides.append("validation_size=60")
    return Experiment(shlex.join(overrides))


MET: set[frozenset[str]] = set()  # overrides of cells that were tried, one by one and two by two


def new(cell: Cell) -> set[frozenset[str]]:
    return {frozenset(two) for two in combinations_with_replacement(cell.overrides, 2)} - MET


def telling(table: PaperTable) -> Iterator[Cell]:
    """Yield cells until each two overrides have met that meet in the table, in it or in one before."""
    cells = table.cells()
    while new(most := max(cells, key=lambda cell: len(new(cell)))):
        MET.update(new(most))
        yield most


@pytest.mark.exhaustive
@pytest.mark.parametrize("table", TABLES, ids=name_of)
@pytest.mark.usefixtures("small_data")
def test_every_cell_composes_and_instantiates(table: PaperTable) -> None:
    """What is wrong with a cell is wrong with an override, or with two that do not go together."""
    checked = set()
    for cell in telling(table):
        experiment = experiment_of(cell)
        OmegaConf.to_container(experiment.cfg, resolve=True)
        assert isinstance(experiment.strategy(), PseudoGradientStrategy | Grouped)
        assert isinstance(experiment.training, LocalTraining)
        assert isinstance(experiment.partitioner, Partitioner)
        cfg = experiment.cfg
        fits = (
            str(cfg.dataset.shape),
            cfg.dataset.num_classes,
            str(cfg.model),
            str(cfg.partitioner),
            cfg.num_nodes,
        )
        if fits not in checked:  # what is common to many cells is built and tried once
            check(experiment)
        checked.add(fits)


OF_EACH_EXPERIMENT = {table.experiment: table for table in TABLES}.values()


@pytest.mark.exhaustive
@pytest.mark.parametrize("table", OF_EACH_EXPERIMENT, ids=name_of)
def test_two_steps_compose_what_hydra_does(table: PaperTable) -> None:
    overrides = table.cells()[-1].overrides
    with config.initialize_hydra():
        whole = compose("config", overrides=[*overrides])
    ours = config.compose_unchecked.__wrapped__(shlex.join(overrides)).cfg  # anew: building a part resolves
    assert OmegaConf.to_yaml(ours) == OmegaConf.to_yaml(whole)
