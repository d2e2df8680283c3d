"""The papers' tables, cell by cell: what is printed, and the settings it stands for."""

import shlex
from pathlib import Path

import pytest
import torch

from baselines.errors import UserError
from baselines.experiment import config
from baselines.experiment.experiment import Experiment
from baselines.experiment.overrides import CONF
from baselines.reproduce import paper_tables
from baselines.reproduce.paper_tables import Cell, PaperTable

PAPERS = ("feder", "fedexp", "gma", "selective", "weight_erosion")
TABLES = [table for paper in PAPERS for table in paper_tables.tables(paper).values()]


def name_of(table: PaperTable) -> str:
    return f"{table.paper}/{table.name}"


@pytest.mark.parametrize("table", TABLES, ids=name_of)
def test_cells_differ(table: PaperTable) -> None:
    actual = table.cells()
    assert len({cell.overrides for cell in actual}) == len(actual)
    assert len({tuple(cell.keys.values()) for cell in actual}) == len(actual)


@pytest.mark.parametrize("table", TABLES, ids=name_of)
def test_a_table_says_how_it_is_read(table: PaperTable) -> None:
    assert (CONF / "experiment" / f"{table.experiment}.yaml").exists()
    assert table.metric in ("accuracy", "loss", "weight_*", "masked_share") or table.by != "round"
    assert table.reduction in ("last", "best", "last10")
    assert table.split in ("test", "node-test", "train")


def test_every_experiment_belongs_to_a_table() -> None:
    folder = CONF / "experiment"
    files = {path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.yaml")}
    shared = {f"{paper}/common" for paper in PAPERS}
    assert files - shared == {table.experiment for table in TABLES}


def one(paper: str, table: str, **keys: str) -> Cell:
    (match,) = (
        cell
        for cell in paper_tables.tables(paper)[table].cells()
        if keys.items() <= dict(cell.keys).items()
    )
    return match


def test_a_cell_of_weight_erosion() -> None:
    cell = one("weight_erosion", "table2", distribution="F", num_nodes="100", method="weight_erosion")
    assert cell.paper_mean == 0.9545
    cfg = config.load(shlex.join(cell.overrides))
    assert (cfg.rounds, cfg.num_nodes, cfg.client.batch_size, cfg.client.optimizer.lr) == (30, 100, 32, 0.1)
    weights = cfg.weighting
    assert (weights.distance_penalty, weights.size_penalty, weights.batch_size) == (0.001, 2, 32)
    assert (cfg.partitioner.distribution, cfg.partitioner.requester) == ("F", 0)


def test_a_cell_of_gradient_masking() -> None:
    keys = {"dataset": "cifar10", "partition": "dominant_labels", "method": "fedprox", "aggregation": "gma"}
    cell = one("gma", "table4_4", **keys)
    assert (cell.paper_mean, cell.paper_std) == (84.24, 0.38)
    cfg = config.load(shlex.join(cell.overrides))
    assert (cfg.step_size.eta, cfg.client.optimizer.lr, cfg.client.optimizer.momentum) == (1.0, 0.001, 0.9)
    assert (cfg.mask._target_, cfg.mask.tau) == ("strategies.AgreementMask", 0.4)
    assert (cfg.model.groups, cfg.num_nodes, cfg.dataset.load.augment) == (2, 10, None)


def test_a_cell_of_feder() -> None:
    cell = one("feder", "table4_2", optimizer="adamp", schedule="steplr", method="feder")
    experiment = Experiment(shlex.join(cell.overrides))
    assert cell.paper_mean == 72.68
    assert [experiment.training.schedule(r) for r in (1, 25, 26, 51)] == [1, 1, 0.5, 0.25]
    optimizer = experiment.training.optimizer([torch.nn.Parameter(torch.zeros(2, 2))])
    assert type(optimizer).__name__ == "AdamP"
    assert optimizer.param_groups[0]["lr"] == 1e-3
    assert optimizer.param_groups[0]["weight_decay"] == 1e-4
    assert (
        experiment.settings.num_nodes,
        experiment.cfg.client.batch_size,
        experiment.settings.rounds,
    ) == (4, 128, 250)
    assert experiment.cfg.dataset.load.augment == {
        "_target_": "clients.augment.Augment",
        "padding": 4,
        "flip": True,
        "cutout": 16,
    }


def test_every_rate_of_the_appendix_is_used() -> None:
    for name in ("table4_1", "table4_4", "table4_7", "table4_8", "table4_5"):
        for cell in paper_tables.tables("gma")[name].cells():
            given = dict(o.split("=") for o in cell.overrides if "=" in o)
            assert float(given["step_size.eta"]) in (0.01, 0.05, 1.0, 1.5)
            assert float(given["client.optimizer.lr"]) in (0.001, 0.01, 0.1)


def test_what_the_thesis_prints_of_its_curves() -> None:
    cell = one("selective", "figures7_1_to_7_3", model="mlp30", balanced_percent="0", method="fedavg")
    assert cell.paper_mean == 32.66
    assert one("selective", "table7_1", model="cnn6").paper_mean == 99.54


def test_unknown_papers_and_values_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"no paper 'gna': expected one of feder, fedexp, gma"):
        paper_tables.tables("gna")
    table = paper_tables.tables("weight_erosion")["table2"]
    monkeypatch.setattr(
        paper_tables, "_rows", lambda *_: [{"distribution": "H", "num_nodes": "10", "method": "local"}]
    )
    with pytest.raises(UserError, match=r"distribution=H is not in tables.yaml"):
        table.cells()
