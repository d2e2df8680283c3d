"""Which runs a command means, at which scale, and when two of them are the same."""

import shlex
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from baselines.errors import UserError
from baselines.experiment import config
from baselines.experiment.identity import config_hash, identity
from baselines.reproduce import paper_tables
from baselines.reproduce.plan import SCALES, Trial, plan, select, table_of


def planned(paper: str, table: str, where: str = "", scale: str = "full", *extra: str) -> list[Trial]:
    paper_table = table_of(paper, table)
    return plan(paper_table, select(paper_table, where), (3, 5, 7), scale, extra, Path("out"))


@pytest.mark.exhaustive
@pytest.mark.parametrize("scale", SCALES)
def test_a_trial_is_the_run_that_its_overrides_name(scale: str) -> None:
    for trial in planned("gma", "table4_1", "dataset=cmnist,method=scaffold", scale, "min_replies=2"):
        cfg = config.load(shlex.join(trial.overrides))
        assert (trial.seed, trial.rounds) == (cfg.seed, cfg.rounds)
        assert trial.config == config_hash(cfg)
        assert trial.folder == Path("out") / "gma" / identity(cfg)


def test_the_run_itself_is_known_by_the_same_identity() -> None:
    """Neither where it writes nor that it resumes is part of it."""
    (trial, *_) = planned("weight_erosion", "table2", "num_nodes=10,method=local,distribution=A")
    overrides = [argument for argument in trial.arguments if not argument.startswith("hydra.")]
    assert identity(config.load(shlex.join(overrides))) == trial.folder.name
    assert trial.command.startswith("OMP_NUM_THREADS=1 python -m baselines.run experiment=weight_erosion/")


def test_the_full_scale_is_the_papers_setting() -> None:
    trials = planned("gma", "table4_4", "dataset=mnist,partition=iid,method=fedavg")
    assert [(t.seed, t.rounds, t.changes) for t in trials[:3]] == [(3, 100, ""), (5, 100, ""), (7, 100, "")]
    assert len(trials) == 6


def test_the_small_scale_has_a_fifth_of_the_rounds_and_two_seeds() -> None:
    trials = planned("gma", "table4_4", "dataset=mnist,partition=iid,method=fedavg", "small")
    assert [(t.seed, t.rounds, t.changes) for t in trials[:2]] == [
        (3, 20, "rounds=20"),
        (5, 20, "rounds=20"),
    ]
    (short, *_) = planned("weight_erosion", "table2", "num_nodes=10,method=local,distribution=A", "small")
    assert short.rounds == 10  # of 30: never below ten


def test_the_smoke_scale_has_two_rounds_of_two_steps_and_one_seed() -> None:
    (trial,) = planned("fedexp", "figure_200_rounds", "data_seed=0,method=fedavg", "smoke")
    assert trial.changes == "rounds=2 client.local_epochs=null client.local_steps=2"
    assert (trial.seed, trial.rounds) == (3, 2)


@pytest.mark.usefixtures("papers")
def test_a_setting_that_a_scale_does_not_change_is_the_papers() -> None:
    """A run of four rounds is as short as a reduced one may be."""
    full, small = (planned("tiny", "table1", "", scale)[0] for scale in ("full", "small"))
    assert full == small
    assert small.changes == ""


def test_overrides_of_the_users_are_changes() -> None:
    (trial, *_) = planned("gma", "figure3_3", "tau=0.4", "small", "client.batch_size=64")
    assert trial.changes == "client.batch_size=64 rounds=20"


def test_where_a_trial_is_run_is_no_change_of_its_setting() -> None:
    """Else a GPU's numbers would never be the paper's."""
    cell = "optimizer=adam,schedule=none,method=fedavg"
    where = ("device=auto", "threads=2", "runtime=ray", "runtime.client_cpus=2", "data_root=/elsewhere")
    here, *_ = planned("feder", "table4_2", cell)
    elsewhere, *_ = planned("feder", "table4_2", cell, "full", *where)
    assert (elsewhere.changes, elsewhere.config) == ("", here.config)
    assert elsewhere.folder != here.folder
    assert elsewhere.overrides[-6:-1] == where
    half, *_ = planned("feder", "table4_2", cell, "full", "device=auto", "autocast=bfloat16")
    assert half.changes == "autocast=bfloat16"
    assert half.config != here.config


def test_an_override_that_says_what_is_so_is_no_change() -> None:
    (same, *_) = planned("gma", "figure3_3", "tau=0.4", "full", "rounds=100", "client.batch_size=32")
    (plain, *_) = planned("gma", "figure3_3", "tau=0.4")
    assert (same.changes, same.config, same.folder) == ("", plain.config, plain.folder)


def test_a_folder_of_any_name_is_written_so_that_hydra_reads_it() -> None:
    table = table_of("gma", "figure3_3")
    for name in ("plain", "oút, a=b", "a'b[c]"):
        trial, *_ = plan(table, select(table, "tau=0.4"), (0,), "full", (), Path(name))
        (override,) = [argument for argument in trial.arguments if argument.startswith("hydra.run.dir=")]
        (read,) = OverridesParser.create().parse_overrides([override])
        assert read.value() == str(trial.folder)


def test_an_override_that_a_cell_does_not_take_names_the_cell() -> None:
    message = "^femnist by_writer fedavg average: there is no setting dataset.load.node_turn: "
    with pytest.raises(UserError, match=message):
        planned("gma", "table4_1", "", "full", "dataset.load.node_turn=45")


@pytest.mark.slow
def test_tables_of_one_paper_share_runs() -> None:
    """The same models are evaluated on the whole test set and on the nodes' own."""
    where = "model=cnn4,balanced_percent=20"
    one, other = (planned("selective", name, where) for name in ("figures7_1_to_7_3", "figures7_4_to_7_6"))
    assert [trial.folder for trial in one] == [trial.folder for trial in other]


def test_where_selects_cells() -> None:
    table = table_of("gma", "table4_4")
    assert select(table, "") == table.cells()
    both = select(table, "dataset=mnist,dataset=fmnist,partition=iid")
    assert {(cell.keys["dataset"], cell.keys["partition"]) for cell in both} == {
        ("mnist", "iid"),
        ("fmnist", "iid"),
    }


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("tau=0.3", "--where tau=0.3: table4_4 has dataset mnist, fmnist"),
        ("dataset=svhn", "--where dataset=svhn: table4_4 has dataset mnist, fmnist"),
        ("dataset=mnist|fmnist", "a key given twice allows both"),
        ("dataset=mnist,partition=by_writer", "it matches no cell of table4_4"),
    ],
)
def test_a_mistake_in_where_is_named(where: str, message: str) -> None:
    with pytest.raises(UserError) as raised:
        select(table_of("gma", "table4_4"), where)
    assert message in str(raised.value)


def test_an_unknown_table_is_named() -> None:
    with pytest.raises(
        UserError, match=r"no table 'table9' of feder: expected one of table4_2, .*figureA_1"
    ):
        table_of("feder", "table9")


FINDING = {"text", "where", "or_equal", "headline", "general", "gain", "within"}


@pytest.mark.parametrize(
    "paper", sorted(path.parent.name for path in paper_tables.PAPERS.glob("*/tables.yaml"))
)
def test_findings_name_cells_that_are_there(paper: str) -> None:
    for table in paper_tables.tables(paper).values():
        assert table.x is None or table.x in table.keys
        for finding in table.findings:
            compared = {"column", "better", "worse"} if "below" not in finding else {"below"}
            assert compared <= set(finding) <= compared | FINDING
            if "below" not in finding:
                values = [*paper_tables.texts(finding["better"]), *paper_tables.texts(finding["worse"])]
                assert set(values) <= set(table.keys[finding["column"]])
            for column, wanted in finding.get("where", {}).items():
                assert set(paper_tables.texts(wanted)) <= set(table.keys[column])
