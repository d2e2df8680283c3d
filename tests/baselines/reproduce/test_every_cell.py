"""Every override of the papers' tables composes with every other that it meets there, and all is built."""

import shlex
from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from itertools import combinations_with_replacement

import pytest
import torch
from hydra import compose
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from baselines.datasets import Dataset
from baselines.experiment import config
from baselines.experiment.data import loaded
from baselines.experiment.experiment import Experiment
from baselines.experiment.overrides import CONF
from baselines.experiment.preflight import check
from baselines.partitioners import Partitioner
from baselines.reproduce import paper_tables
from baselines.reproduce.paper_tables import Cell, PaperTable
from clients import Classification, LocalTraining, Normalize
from strategies import Grouped, PseudoGradientStrategy

TABLES = [table for paper in paper_tables.papers() for table in paper_tables.tables(paper).values()]
ROWS = 6_000
WRITERS = 3_238  # as many as FEMNIST has


def name_of(table: PaperTable) -> str:
    return f"{table.paper}/{table.name}"


@cache
def sample(shape: tuple[int, ...], classes: int) -> Dataset:
    """Return blank images with every label and many writers."""
    labels = torch.arange(ROWS) % classes
    inputs = torch.zeros((ROWS, *shape), dtype=torch.uint8)
    owners = (torch.arange(ROWS) % WRITERS).numpy()
    normalize = Normalize((0.0,) * shape[0], (1.0,) * shape[0])
    return Dataset(inputs, labels, inputs, labels, Classification(), normalize, owners=owners)


@pytest.fixture
def small_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a small sample in the place of every image set."""
    real = loaded

    def dataset(yaml: str) -> Dataset:
        cfg = OmegaConf.create(yaml)
        if cfg.num_classes == 1:  # the synthetic problem is small itself
            return real(yaml)
        return sample(tuple(cfg.shape), cfg.num_classes)

    monkeypatch.setattr("baselines.experiment.data.loaded", dataset)


@cache
def chosen(name: str, options: tuple[str, ...]) -> DictConfig:
    return compose(name, overrides=list(options), return_hydra_config=True)


def in_two_steps(name: str, overrides: list[str], return_hydra_config: bool = False) -> DictConfig:
    """Compose as Hydra does, first the options and then the values, but equal options only once."""
    options = tuple(one for one in overrides if (CONF / one.partition("=")[0]).is_dir())
    values = [one for one in overrides if one not in options]
    if any(one.startswith(("+", "~")) for one in values):
        return compose(name, overrides=overrides, return_hydra_config=return_hydra_config)
    cfg = deepcopy(chosen(name, options))
    for value in OverridesParser.create().parse_overrides(values):
        OmegaConf.update(cfg, value.key_or_group, value.value())
    return cfg


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
def test_every_cell_composes_and_instantiates(table: PaperTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is wrong with a cell is wrong with an override, or with two that do not go together."""
    monkeypatch.setattr(config, "compose", in_two_steps)
    checked = set()
    for cell in telling(table):
        this = experiment_of(cell)
        OmegaConf.to_container(this.cfg, resolve=True)
        assert isinstance(this.strategy(), PseudoGradientStrategy | Grouped)
        assert isinstance(this.training, LocalTraining)
        assert isinstance(this.partitioner, Partitioner)
        cfg = this.cfg
        fits = (
            str(cfg.dataset.shape),
            cfg.dataset.num_classes,
            str(cfg.model),
            str(cfg.partitioner),
            cfg.num_nodes,
        )
        if fits not in checked:  # what is common to many cells is built and tried once
            check(this)
        checked.add(fits)


@pytest.mark.exhaustive
@pytest.mark.parametrize("table", TABLES, ids=name_of)
def test_two_steps_compose_what_hydra_does(table: PaperTable, monkeypatch: pytest.MonkeyPatch) -> None:
    words = shlex.join(table.cells()[-1].overrides)
    whole = OmegaConf.to_yaml(config.composed.__wrapped__(words).cfg)
    monkeypatch.setattr(config, "compose", in_two_steps)
    assert OmegaConf.to_yaml(config.composed.__wrapped__(words).cfg) == whole
