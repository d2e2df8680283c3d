"""When two runs are the same run."""

import csv
import shlex
from functools import cache
from inspect import signature
from pathlib import Path

import pytest
from omegaconf import OmegaConf, open_dict

from baselines.errors import UserError
from baselines.experiment import config
from baselines.experiment import identity as identities
from baselines.experiment.closed import known_targets
from baselines.experiment.config import leaves
from baselines.experiment.identity import (
    LATER_SETTINGS,
    LAUNCH_SETTINGS,
    UNHASHED_SETTINGS,
    Variants,
    config_hash,
    forget_changed,
    hash_own_files,
    identity,
    names_file,
)
from baselines.experiment.overrides import CONF
from baselines.experiment.validation import OWN_MODULES, find_object
from baselines.reproduce import paper_tables
from baselines.reproduce.paper_tables import PaperTable


def test_what_does_not_decide_the_numbers_is_no_part_of_the_identity() -> None:
    one = identity(config.load("seed=3"))
    assert one == identity(config.load("seed=3 resume=true checkpoint_every=5 debug=true data_root=/else"))
    assert one == identity(config.load("seed=3 client=sgd rounds=30"))  # the defaults, spelled out
    others = {identity(config.load(o)) for o in ("seed=4", "seed=3 rounds=31", "seed=3 threads=2")}
    assert len(others | {one}) == 4


OTHERS = "dataset.load._target_=mylab.data.load +dataset.load"
OWN_FILES = {  # overrides that name a file of the user's own, by what they name
    "trace": "strategy=fedbuff clock=trace clock.path={}",
    "play": "dataset=speech dataset.load.path={}",
    "table": "dataset=text dataset.name={}",
    "other table": "dataset=text dataset.name=imdb dataset.test_split={}",
    "tokenizer": "dataset=text dataset.tokenizer={} model=huggingface model.name=bert",
    "weights": "model=lora model.weights={}",
    "site": "dataset=local 'runtime.sites={{north: {}}}'",
    "site of a deployment": "dataset=local runtime=superlink 'runtime.sites={{north: {}}}'",
    "data of another's class": f"{OTHERS}.path={{}}",
    "list of another's class": f"{OTHERS}.parts=[{{}}]",
    "part of another's class": f"'{OTHERS.partition(' ')[0]}' '+dataset.load.part={{{{of: {{}}}}}}'",
    "model of another's class": "model._target_=torch.nn.Module +model.checkpoint={}",
}
OWN_FOLDERS = {
    "hub": "dataset=hub dataset.name={}",
    "texts": "dataset=text dataset.name={}",
    "model": "model=huggingface model.name={}",
    "site": OWN_FILES["site"],
    "data of another's class": OWN_FILES["data of another's class"],
    "model of another's class": OWN_FILES["model of another's class"],
}


def hash_of(overrides: str) -> str:
    """Return the hash of a configuration whose classes need not exist."""
    forget_changed()
    return config_hash(config.compose_unchecked(overrides).cfg)


@pytest.mark.parametrize("named", OWN_FILES)
def test_a_file_of_the_users_own_counts_with_its_content(named: str, tmp_path: Path) -> None:
    one, moved = tmp_path / "one.csv", tmp_path / "moved.csv"
    for file in (one, moved):
        file.write_text("1,2\n")
    before = hash_of(OWN_FILES[named].format(one))
    assert hash_of(OWN_FILES[named].format(moved)) == before
    one.write_text("1,3\n")
    assert hash_of(OWN_FILES[named].format(one)) != before
    unread = {hash_of(OWN_FILES[named].format(tmp_path / name)) for name in ("gone.csv", "lost.csv")}
    assert len(unread - {before}) == 2


@pytest.mark.parametrize("named", OWN_FOLDERS)
def test_a_folder_counts_with_what_is_in_it(named: str, tmp_path: Path) -> None:
    def write(folder: str, name: str = "cat/1.png", content: str = "one") -> str:
        file = tmp_path / folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
        return hash_of(OWN_FOLDERS[named].format(tmp_path / folder))

    before = write("one")
    assert write("moved") == before
    write("one", "florilegium-cache/one.npz")  # is no part of the data
    others = [write("one", content="two"), write("one", "cat/2.png"), write("renamed", "dog/1.png")]
    assert len({before, *others}) == 4


def test_a_name_is_not_taken_for_a_folder_beside_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But the name of a data set is, as Hugging Face takes it so, and whoever reads it may."""
    named = {
        "model._target_=timm.create_model +model.model_name=resnet18": False,
        "dataset=text dataset.name=imdb dataset.test_split=resnet18": False,
        "dataset=hub dataset.name=resnet18": True,
        f"{OTHERS}.path=resnet18": True,
    }
    monkeypatch.chdir(tmp_path)
    before = {overrides: hash_of(overrides) for overrides in named}
    (tmp_path / "resnet18").mkdir()
    assert {overrides: hash_of(overrides) != before[overrides] for overrides in named} == named


def test_what_is_read_from_the_data_folder_by_name_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a run without files of its own reads nothing for its identity; a reference below it is one's own."""
    for name in (
        "MNIST/raw/train",
        "MNIST-writers/mnist_writers.npz",
        "femnist/train/a.json",
        "mine/a.csv",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1")
    monkeypatch.chdir(tmp_path)
    for dataset in ("mnist", "mnist_writers", "femnist", "digits"):
        assert hash_own_files(config.load(f"dataset={dataset} data_root={tmp_path}")) == {}
    for place, expected in (
        ("", {}),
        ("/mine", {f"{tmp_path}/mine"}),
        ("/mine/a.csv", {f"{tmp_path}/mine/a.csv"}),
    ):
        overrides = f"{OTHERS}.root='${{data_root}}{place}' data_root={tmp_path}"
        cfg = config.compose_unchecked(overrides.replace("'", "")).cfg
        assert hash_own_files(cfg).keys() == set(expected)
    assert hash_of(f"dataset=speech data_root={tmp_path}") == hash_of("dataset=speech data_root=/else")


def test_a_file_is_read_once_until_it_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, counted = tmp_path / "play.txt", []
    file.write_text("A:\nb\n")
    cfg, whole = config.load(f"dataset=speech dataset.load.path={file}"), identities._hash_file
    monkeypatch.setattr(identities, "_hash_file", lambda path: counted.append(path) or whole(path))
    before = identity(cfg)
    assert [identity(cfg), identity(cfg)] == [before, before]
    assert counted == [file]
    file.write_text("A:\nc\n")
    assert identity(cfg) == before  # of the data that a run has begun with
    assert forget_changed()
    assert identity(cfg) != before
    assert not forget_changed()


NO_FILES = {  # texts of this suite's classes that name no file of the user's own
    "baselines.datasets.TorchvisionImages": {"source", "root", "folder", "split"},
    "baselines.datasets.femnist": {"root", "folder", "hub_name"},
    "baselines.datasets.hub": {"image", "label", "writer", "subset", "train_split", "test_split", "cache"},
    "baselines.datasets.local": {"cache"},
    "baselines.datasets.mnist_writers": {"ids", "qmnist"},
    "baselines.datasets.synthetic": {"dtype"},
    "baselines.datasets.text": {"column", "label", "writer", "subset", "train_split", "cache"},
    "baselines.models.HuggingFace": {"tokenizer"},  # the data set's
    "baselines.models.LinearRegression": {"dtype"},
    "baselines.partitioners.ShiftedLabels": {"distribution"},
    "baselines.runtimes.Ray": {"address", "code"},
    "strategies.ByExamples": {"key"},
    "strategies.EffectiveRank": {"variant", "granularity", "unfolding", "layout"},
    "strategies.StableRank": {"variant", "granularity", "unfolding", "layout"},
}


def test_every_argument_that_may_name_a_file_is_listed() -> None:
    """Whoever adds a text says whether it names a file: in ``FILES``, in ``FOLDERS`` or here."""
    others: dict[str, set[str]] = {}
    ours = (target for target in known_targets() if target.startswith(OWN_MODULES))
    for target in (one for one in ours if not one.startswith("baselines.engine.loggers.")):
        for name, argument in signature(find_object(target), eval_str=True).parameters.items():
            is_text = argument.annotation in (str, str | None) or "Path" in str(argument.annotation)
            if is_text and name != "group" and not names_file(target, name):
                others.setdefault(target, set()).add(name)
    assert others == NO_FILES


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
