"""When two runs are the same run."""

import csv
import shlex
from functools import cache
from pathlib import Path

import pytest
from omegaconf import OmegaConf, open_dict

from baselines.errors import UserError
from baselines.experiment import config
from baselines.experiment.config import leaves
from baselines.experiment.identity import (
    LATER_SETTINGS,
    LAUNCH_SETTINGS,
    UNHASHED_SETTINGS,
    Variants,
    config_hash,
    identity,
)
from baselines.experiment.overrides import CONF
from baselines.reproduce import paper_tables
from baselines.reproduce.paper_tables import PaperTable


def test_what_does_not_decide_the_numbers_is_no_part_of_the_identity() -> None:
    one = identity(config.load("seed=3"))
    assert one == identity(config.load("seed=3 resume=true checkpoint_every=5 debug=true data_root=/else"))
    assert one == identity(config.load("seed=3 client=sgd rounds=30"))  # the defaults, spelled out
    others = {identity(config.load(o)) for o in ("seed=4", "seed=3 rounds=31", "seed=3 threads=2")}
    assert len(others | {one}) == 4


def test_a_trace_counts_with_its_content(tmp_path: Path) -> None:
    def write(folder: str, seconds: int) -> str:
        file = tmp_path / folder / "trace.csv"
        file.parent.mkdir()
        file.write_text(f"node,seconds_per_step,bytes_per_second\n0,{seconds},\n")
        return identity(config.load(f"strategy=fedbuff clock=trace clock.path={file}"))

    one = write("a", 1)
    assert write("b", 1) == one  # the same trace in another folder
    assert write("c", 2) != one
    (tmp_path / "a" / "trace.csv").write_text("node,seconds_per_step,bytes_per_second\n0,3,\n")
    assert identity(config.load(f"strategy=fedbuff clock=trace clock.path={tmp_path}/a/trace.csv")) != one
    unread = [
        config_hash(config.load(f"clock=trace clock.path={name}")) for name in ("gone.csv", "lost.csv")
    ]
    assert unread[0] != unread[1]


def test_an_identity_needs_all_values() -> None:
    with pytest.raises(UserError):
        identity(OmegaConf.create({"data_root": "", "a": "${missing}"}))


TABLES = [table for paper in paper_tables.papers() for table in paper_tables.tables(paper).values()]
SAMPLE = (  # one of each paper
    ("fedexp", "figure_200_rounds"),
    ("gma", "table4_4"),
    ("feder", "table4_2"),
    ("selective", "table7_1"),
    ("weight_erosion", "table2"),
)


def rows_of(table: PaperTable) -> list[dict[str, str]]:
    path = paper_tables.PAPERS / table.paper / "ours" / f"{table.name}.csv"
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def assert_own_configuration(table: PaperTable, rows: list[dict[str, str]]) -> None:
    cells = {tuple(cell.keys.values()): cell for cell in table.cells()}
    variants = cache(Variants)
    for row in rows:
        cell = cells[tuple(row[key] for key in table.keys)]
        setting = variants((*cell.overrides, *shlex.split(row["changes"])))
        assert setting.config_hash(int(row["seed"])) == row["config"], row


@pytest.mark.parametrize(("paper", "name"), SAMPLE)
def test_published_results_are_of_the_configuration_that_they_were_of(paper: str, name: str) -> None:
    """Options that came later, in a group's file too, leave the stored hashes as they are."""
    table = paper_tables.tables(paper)[name]
    assert rows_of(table)
    assert_own_configuration(table, rows_of(table)[:3])


@pytest.mark.slow
@pytest.mark.parametrize("table", TABLES, ids=lambda table: f"{table.paper}-{table.name}")
def test_so_is_every_published_number(table: PaperTable) -> None:
    assert_own_configuration(table, rows_of(table))


def test_every_value_counts_also_that_of_a_default() -> None:
    """Whoever changes a default changes the identity of the runs that take it."""
    settings = OmegaConf.to_container(config.load("mask=agreement"), resolve=True)
    assert isinstance(settings, dict)
    whole = config_hash(OmegaConf.create(settings))
    aside = {*UNHASHED_SETTINGS, "data_root"}
    for name in leaves(settings):
        other = OmegaConf.create(settings)
        OmegaConf.update(other, name, "another")
        counts = config_hash(other) != whole
        assert counts != (name.partition(".")[0] in aside), name


@pytest.mark.parametrize("changed", ["client.trace=false", "deterministic=true"])
def test_a_later_option_counts_where_it_is_not_as_it_was(changed: str) -> None:
    now, key = config.load(""), changed.partition("=")[0]
    assert key in LATER_SETTINGS
    before = now.copy()
    with open_dict(before):
        parent, _, name = key.rpartition(".")
        del (before[parent] if parent else before)[name]
    assert config_hash(now) == config_hash(before)
    assert config_hash(config.load(changed)) != config_hash(before)


def test_a_later_option_is_not_missed() -> None:
    """A client of the user's own may have none of ours."""
    bare = config.load("").copy()
    with open_dict(bare):
        bare.client = None
    assert config_hash(bare) != config_hash(config.load(""))


def test_how_nodes_are_reached_is_read_off_the_other_run_and_nothing_else_is() -> None:
    runtimes = [OmegaConf.load(file) for file in (CONF / "runtime").glob("*.yaml")]
    names = {name.partition(".")[2] for name in LAUNCH_SETTINGS if name.startswith("runtime.")}
    assert names <= {key for one in runtimes for key in one}
    for runtime in ("ray", "superlink"):
        one, other = config.load(f"runtime={runtime}"), config.load(f"runtime={runtime}").copy()
        for name in LAUNCH_SETTINGS:
            if OmegaConf.select(one, name, default=...) is not ...:
                OmegaConf.update(other, name, "another")
        container = OmegaConf.to_container(one, resolve=True)
        assert identity(other) != identity(one) == identity(other, like=container)
        other.seed = 1
        assert identity(other, like=container) != identity(one)
