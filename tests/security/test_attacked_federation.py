"""A real federation of two hospitals over TLS, attacked by its own submitter."""

import json
import shlex
import stat
import subprocess
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from baselines.experiment.overrides import inline_schema
from baselines.federation.__main__ import main
from baselines.runtimes import commands
from baselines.runtimes.staging import copy_app
from helpers.deployed import Deployed, deployed
from helpers.runs import lines_in

pytestmark = pytest.mark.slow
SITES = ("north", "south")
SECRET, VARIABLE = "hunter2-of-the-site", "SECRET_DB_PASSWORD"


def write_tables(folder: Path) -> str:
    """Write each site's patients, whose glucose tells who is ill, and the schema."""
    rng = np.random.default_rng(0)
    for k, name in enumerate(SITES):
        glucose = rng.normal(100, 15, 120)
        table = pd.DataFrame(
            {
                "patient_name": [f"Patient {k}-{row}" for row in range(120)],
                "age": (20 + rng.random(120) * 60).round(9),
                "glucose": glucose.round(2),
                "bmi": rng.normal(27, 4, 120).round(2),
                "ill": np.where(glucose > 105, "yes", "no"),
            }
        )
        table.to_csv(folder / f"{name}.csv", index=False)
        table[["glucose", "bmi", "ill"]].to_csv(folder / "agreed.csv", index=False)
    assert (
        main(["schema", str(folder / "agreed.csv"), "--label", "ill", "--out", f"{folder}/schema.yaml"])
        == 0
    )
    return "csv"


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, SECRET)  # of all that is started
        with deployed(tmp_path_factory.mktemp("hospitals"), SITES, write_tables) as federation:
            yield federation


def attacked(federation: Deployed, name: str, *overrides: str, output: str = "") -> str:
    """Submit without the checks of ``submit``, as whoever can reach the SuperLink does; return the log."""
    run_config = federation.folder / f"{name}.toml"
    run_config.write_text(commands.run_config(shlex.join(overrides), output))
    done = subprocess.run(
        commands.submit(copy_app(federation.folder / "app"), "lakes", run_config),
        env=commands.environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    return done.stdout + done.stderr


def experiment(federation: Deployed) -> list[str]:
    schema = inline_schema(f"dataset.schema={federation.folder / 'schema.yaml'}")
    return ["dataset=local", schema, "num_nodes=2", "node_test_fraction=0.25", "model=softmax", "rounds=2"]


def everything_seen(federation: Deployed, log: str) -> str:
    """Return what a submitter and an operator can read: the log, and the SuperLink's database."""
    database = (federation.made / "superlink" / "superlink.db").read_bytes()
    return log + database.decode("latin-1") + (federation.programs.logs / "superlink.log").read_text()


def test_two_honest_runs_at_once_train_are_written_down_and_are_private(federation: Deployed) -> None:
    overrides = "model=softmax rounds=1 client.optimizer.lr=0.5 save=last"
    with ThreadPoolExecutor() as pool:
        runs = [pool.submit(federation.submit, name, *overrides.split()) for name in ("first", "second")]
        assert [run.result() for run in runs] == [0, 0]
    folders = [federation.folder / name for name in ("first", "second")]
    assert lines_in(folders[0]) == lines_in(folders[1])
    rows = pd.read_csv(folders[0] / "metrics.csv")
    own = rows[(rows.split == "site-test") & (rows.metric == "num_examples") & (rows["round"] == 1)]
    assert sorted(own.model) == sorted(SITES)
    kept = [*folders, *folders[0].rglob("*"), federation.made / "superlink" / "superlink.db"]
    kept += [path for site in SITES for path in (federation.made / site / "state").rglob("*")]
    assert {path.name for path in kept if stat.S_IMODE(path.stat().st_mode) & 0o077} == set()
    for site in SITES:
        lines = (federation.made / site / "state" / "audit.jsonl").read_text().splitlines()
        entries = [json.loads(line) for line in lines]
        rounds = Counter(e["run"] for e in entries if e["asked"] == "train")
        assert list(rounds.values()) == [1, 1]
        assert all(e["rows"] == 90 and e["norm"] > 0 for e in entries if e["asked"] == "train")
        assert not list((federation.made / site / "state" / "prepared").iterdir())  # gone with the runs


def test_a_payload_in_the_configuration_runs_nowhere(federation: Deployed) -> None:
    mark = federation.folder / "harm"
    path = f"{{_target_: pathlib.Path, _args_: ['{mark}']}}"
    payload = f"+client.personal={{_target_: pathlib.Path.touch, self: {path}}}"
    log = attacked(federation, "payload", *experiment(federation), payload)
    assert "the experiment is refused: client.personal._target_" in log
    assert not mark.exists()


@pytest.mark.runtime  # what Flower logs and keeps differs by its version
def test_no_value_of_a_patient_leaves_a_site(federation: Deployed) -> None:
    overrides = [one.replace("label:'ill'", "label:'age'") for one in experiment(federation)]
    assert overrides != experiment(federation)
    log = attacked(federation, "label", *overrides, "node_timeout=60")
    assert "refused by the site's file: label" in log
    seen = everything_seen(federation, log)
    for site in SITES:
        table = pd.read_csv(federation.folder / f"{site}.csv", dtype=str)
        assert not [value for value in [*table.age, *table.patient_name] if value in seen]
        assert str(federation.folder / f"{site}.csv") not in log


def test_no_variable_of_a_site_or_of_the_server_leaves_it(federation: Deployed) -> None:
    override = f"columns:['${{oc.env:{VARIABLE},nothing}}','bmi']"
    overrides = [one.replace("columns:['glucose','bmi']", override) for one in experiment(federation)]
    assert overrides != experiment(federation)
    log = attacked(federation, "variable", *overrides)
    assert "the experiment is refused: dataset.schema" in log
    assert SECRET not in everything_seen(federation, log)


def test_a_run_writes_nowhere_else(federation: Deployed, tmp_path: Path) -> None:
    log = attacked(federation, "elsewhere", *experiment(federation), output=str(tmp_path / "x"))
    assert "the experiment is refused: output=" in log
    assert not (tmp_path / "x").exists()
