"""A federation of sites with data of their own, and what its command line says."""

import json
import logging
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml  # type: ignore[import-untyped]
from sklearn.datasets import load_digits

from baselines import results
from baselines.federation.__main__ import main
from baselines.reports.tables import summarise
from helpers.runs import launch, metrics_in

pytestmark = pytest.mark.runtime
NAMES = np.array(["nil", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"])


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with three sites' data, one of which a label is misspelt in, and a schema."""
    folder = tmp_path_factory.mktemp("sites")
    inputs, targets = load_digits(return_X_y=True)
    inputs, names = inputs.reshape(-1, 1, 8, 8).astype("float32"), NAMES[targets]
    for k, name in enumerate(("north", "south", "west")):
        np.savez(folder / f"{name}.npz", inputs=inputs[k::3], targets=names[k::3])
    np.savez(
        folder / "foreign.npz", inputs=inputs[:100], targets=np.where(names == "two", "zwo", names)[:100]
    )
    assert main(["schema", str(folder / "north.npz"), "--out", str(folder / "schema.yaml")]) == 0
    return folder


def experiment(sites: Path, **paths: str) -> list[str]:
    sites_option = ",".join(f"{name}:'{sites / path}.npz'" for name, path in paths.items())
    schema = f"dataset.schema={sites / 'schema.yaml'}"
    return [
        "dataset=local",
        schema,
        f"num_nodes={len(paths)}",
        f"runtime.sites={{{sites_option}}}",
        *COMMON,
        f"data_root={sites}",
    ]


THREE = {"north": "north", "south": "south", "west": "west"}
COMMON = ["rounds=2", "node_test_fraction=0.25", "node_timeout=0.2"]


def run(sites: Path, folder: Path, *more: str, **paths: str) -> pd.DataFrame:
    assert launch(*experiment(sites, **paths), f"hydra.run.dir={folder}", *more) == 0
    return metrics_in(folder)


@pytest.fixture(scope="module")
def whole(sites: Path, tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    """Return the metrics of a run of three sites."""
    return run(sites, tmp_path_factory.mktemp("run"), "strategy=fedadam", **THREE)


@pytest.mark.slow
def test_sites_are_judged_where_their_data_are(whole: pd.DataFrame) -> None:
    rows = whole
    assert set(rows.split) == {
        "train",
        "node-test",
        "site-test",
        "site-train",
    }  # the server has no test set
    last = rows[(rows["round"] == 2) & (rows.metric == "accuracy")]
    own = last[last.split == "site-test"].set_index("model").value
    assert list(own.index) == ["north", "south", "west"]
    values = rows[(rows["round"] == 2) & (rows.split == "node-test")].set_index("metric").value
    assert values["accuracy_lowest"] == own.min()
    assert values["accuracy_median"] == own.median()
    examples = rows[(rows["round"] == 2) & (rows.metric == "num_examples")].set_index("model").value
    assert values["accuracy"] == pytest.approx((own * examples).sum() / examples.sum())


@pytest.mark.slow
def test_a_site_whose_labels_do_not_fit_takes_no_part(
    sites: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logger = logging.getLogger("flwr.strategies")
    logger.addHandler(caplog.handler)  # a run keeps Flower's lines from the root
    try:
        rows = run(sites, tmp_path, north="north", south="foreign")
    finally:
        logger.removeHandler(caplog.handler)
    (line, *_) = (r.getMessage() for r in caplog.records if "takes no part" in r.getMessage())
    assert line.startswith("site south takes no part: the labels ['zwo'] are not in the schema's classes")
    assert set(rows[rows.split == "site-test"].model) == {"north"}
    assert (rows[rows.metric == "replies"].value == 1).all()


@pytest.mark.slow
def test_a_run_of_sites_resumes_with_equal_numbers(
    sites: Path, whole: pd.DataFrame, tmp_path: Path
) -> None:
    who = dict(reversed(THREE.items()))  # where a site stands decides nothing: numbers go by names
    more = ("strategy=fedadam", "checkpoint_every=1")
    run(sites, tmp_path, *more, "rounds=1", **who)
    pd.testing.assert_frame_equal(whole, run(sites, tmp_path, *more, "resume=true", **who))
    contributions = json.loads((tmp_path / "environment.json").read_text())["contributions"]
    assert list(contributions) == ["site north", "site south", "site west"]
    assert contributions["site west"] == {"updates": 2, "left_out": 0, "examples": 449}  # of 599


@pytest.mark.slow
def test_a_deployment_of_sites_with_relative_paths_is_finished_then(
    sites: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its programs have another folder, and agree on the run's identity."""
    monkeypatch.chdir(sites)
    schema, who = "dataset.schema=schema.yaml", "runtime.sites={north: north.npz, south: south.npz}"
    command = ["dataset=local", schema, "num_nodes=2", "runtime=superlink", who, "resume=true"]
    command += ["rounds=1", "node_test_fraction=0.25"]
    for _ in range(2):
        assert launch(*command, f"data_root={tmp_path}", f"hydra.run.dir={tmp_path}/run") == 0
    assert "finished already" in capsys.readouterr().out


NOISE = ["weighting=uniform", "privacy.clip=1", "privacy.noise_seed=null", "privacy.noise_multiplier=0.5"]


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("demands", "promised", "message"),
    [
        (["--privacy", "central"], [], "privacy=central with noise_multiplier 0 or more"),
        (["--min-noise", "1"], ["privacy=central", *NOISE], "noise_multiplier 1 or more, above 0"),
        (["--privacy", "local"], ["privacy=central", *NOISE], "the experiment has privacy=central"),
    ],
)
def test_check_knows_what_a_site_demands(
    demands: list[str], promised: list[str], message: str, sites: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    overrides = ["dataset=local", f"dataset.schema={sites}/schema.yaml", "node_test_fraction=0.25"]
    data = ["--data", str(sites / "south.npz")]
    assert main(["check", *data, *demands, *overrides, *promised]) == 2
    line, public = capsys.readouterr().err.splitlines()
    assert public == "the server sees: refused by the site: privacy"
    assert line.startswith("error: the site would be left out: this node demands")
    assert message in line
    enough = ["privacy=local", *NOISE[:-1], "privacy.noise_multiplier=1"]
    demands = ["--privacy", "local", "--min-noise", "1"]
    assert main(["check", *data, *demands, *overrides[:2], *enough]) == 0
    out, err = capsys.readouterr()
    assert "metrics: learning-rate, num-examples, partition-id\n" in out  # no loss
    assert "it refuses to evaluate" in out
    assert not err


def test_check_shows_a_site_what_would_happen(sites: Path, capsys: pytest.CaptureFixture[str]) -> None:
    overrides = [
        "dataset=local",
        f"dataset.schema={sites}/schema.yaml",
        f"data_root={sites}",
        "node_test_fraction=0.25",
    ]
    assert main(["check", "--data", str(sites / "south.npz"), "--site", "south", *overrides]) == 0
    printed = capsys.readouterr().out
    assert "one training step" in printed
    assert "num-examples = 449" in printed  # of 599
    assert "local-steps = 1" in printed
    assert "out.weight [10, 64]" in printed
    assert (
        main(["check", overrides[0], "--data", str(sites / "south.npz"), *overrides[1:], "--site", "south"])
        == 0
    )
    assert "num-examples = " in capsys.readouterr().out
    assert main(["check", "--data", str(sites / "foreign.npz"), *overrides]) == 2
    error, public = capsys.readouterr().err.splitlines()
    assert "the labels ['zwo'] are not in the schema's classes" in error
    assert public.startswith("the server sees: ")
    assert "zwo" not in public


def test_check_shows_units_and_duplicates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draws = np.random.default_rng(0)
    rows = {"age": draws.normal(60, 9, 40), "glucose": draws.normal(5.5, 1, 40), "kind": ["a", "b"] * 20}
    north = pd.DataFrame(rows)
    north.to_csv(tmp_path / "north.csv", index=False)
    south = pd.concat([north.assign(glucose=18 * north.glucose), north[:3].assign(kind=" a")])
    south.to_csv(tmp_path / "south.csv.gz", index=False)
    schema = str(tmp_path / "schema.yaml")
    assert main(["schema", str(tmp_path / "north.csv"), "--label", "kind", "--out", schema]) == 0
    overrides = [
        "dataset=local",
        f"dataset.schema={schema}",
        f"data_root={tmp_path}",
        "node_test_fraction=0.2",
    ]
    assert main(["check", "--data", str(tmp_path / "south.csv.gz"), *overrides, "model=softmax"]) == 0
    out = capsys.readouterr().out
    assert "tidied: 3 labels" in out
    assert "duplicates: 0 of 43 rows" in out
    (age,) = (line for line in out.splitlines() if line.startswith("    age: mean "))
    (glucose,) = (line for line in out.splitlines() if line.startswith("    glucose: mean "))
    assert "units" not in age
    assert glucose.endswith("deviations of the schema away: in other units?")


def test_a_schema_takes_the_columns_that_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = {"patient_id": range(8), "bmi": range(20, 28), "age": range(50, 58), "ill": ["no", "yes"] * 4}
    pd.DataFrame(rows).to_csv(tmp_path / "north.csv", index=False)
    arguments = ["schema", str(tmp_path / "north.csv"), "--label", "ill", "--out", str(tmp_path / "s.yaml")]
    assert main(arguments) == 0
    assert "it takes every column but the label" in capsys.readouterr().out
    assert main([*arguments, "--columns", "age, bmi"]) == 0
    assert "every column" not in capsys.readouterr().out
    schema = yaml.safe_load((tmp_path / "s.yaml").read_text())
    assert (schema["columns"], schema["mean"]) == (["age", "bmi"], [53.5, 23.5])
    for columns, line in (("age,weight", "has no column 'weight'"), ("age,ill", "ill is the label")):
        assert main([*arguments, "--columns", columns]) == 2
        (error,) = capsys.readouterr().err.splitlines()  # which no server is told
        assert line in error
    np.savez(tmp_path / "a.npz", inputs=np.zeros((4, 2)), targets=[0, 1, 0, 1])
    assert (
        main(["schema", str(tmp_path / "a.npz"), "--columns", "a", "--out", str(tmp_path / "s.yaml")]) == 2
    )
    assert "is not a table" in capsys.readouterr().err


def test_check_takes_the_experiment_as_it_is_sent_to_all(
    sites: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What asks for several nodes is no mistake where one of them looks."""
    overrides = ["dataset=local", f"dataset.schema={sites}/schema.yaml", f"data_root={sites}"]
    overrides += ["node_test_fraction=0.25", "num_nodes=5", "nodes_per_round=5", "min_replies=3"]
    overrides += ["quorum=3", "round_deadline=60", "aggregation=krum", "participation.dropout=0.95"]
    assert main(["check", "--data", str(sites / "south.npz"), *overrides]) == 0
    assert "one training step" in capsys.readouterr().out
    assert main(["check", "--data", str(sites / "south.npz"), *overrides, "quorum=6"]) == 2
    assert "quorum=6 is out of range: expected a whole number from 1 to 5" in capsys.readouterr().err


@pytest.mark.slow
def test_the_summary_shows_the_worst_and_the_median_site_and_how_far_they_are_apart(
    sites: Path, tmp_path: Path
) -> None:
    rows = run(sites, tmp_path, **THREE)
    own = rows[(rows["round"] == 2) & (rows.split == "site-test") & (rows.metric == "accuracy")].value
    (row,) = summarise(results.load(tmp_path)).to_dict("records")
    expected = {
        "worst site": own.min(),
        "median site": own.median(),
        "best minus worst": own.max() - own.min(),
    }
    assert {heading: row[heading] for heading in expected} == {
        heading: f"{value * 100:.1f} %" for heading, value in expected.items()
    }


@pytest.mark.slow
def test_without_a_central_test_set_each_node_has_a_row(tmp_path: Path) -> None:
    overrides = ["dataset=digits", "num_nodes=2", "central_test=none", *COMMON, f"hydra.run.dir={tmp_path}"]
    assert launch(*overrides) == 0
    rows = metrics_in(tmp_path)
    assert set(rows.split) == {"train", "node-test", "site-test"}
    assert set(rows[rows.split == "site-test"].model) == {"node 0", "node 1"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["runtime.sites=null"], "dataset=local has no partitions"),
        (["central_test=3"], "central_test=3 is out of range: expected all or none"),
        (["quorum=1"], "quorum=1 and round_deadline=null: set both, or none"),
        (["quorum=3", "round_deadline=5"], "quorum=3 is out of range: expected a whole number from 1 to 2"),
        (["quorum=1", "round_deadline=9999"], "expected seconds, above 0 and below timeout=3600"),
        (["quorum=1", "round_deadline=5"], "quorum=1 is for deployments: choose runtime=superlink"),
        (["num_nodes=3"], "runtime.sites has 2 sites, and num_nodes=3"),
        (["node_test_fraction=0"], "nobody would evaluate the model: the server has no test set"),
        (["evaluation.per_node=true"], "per_node=true: each site tells the server how it trained, and"),
        (["validation_size=20"], "validation_size=20: with dataset=local the server has no training"),
        (["model=char_lstm"], "the model does not take the data set's inputs of shape (1, 8, 8) and"),
        (["dataset.schema=null"], "dataset=local needs a schema"),
        (["dataset.schema=/nowhere.yaml"], "dataset.schema: /nowhere.yaml cannot be read"),
        (["dataset=digits"], "runtime.sites are nodes with data of their own: choose dataset=local"),
    ],
)
def test_a_mistake_has_one_line(
    overrides: list[str], message: str, sites: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = experiment(sites, north="north", south="south")
    if "dataset=digits" in overrides:
        options = [one for one in options if not one.startswith("dataset")]
    assert launch(*options, *overrides, f"hydra.run.dir={tmp_path}") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
