"""The model card of a run: its numbers are those of the run's files, and what is unknown is marked."""

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from baselines.engine import saved_model
from baselines.federation import card
from baselines.federation.__main__ import main
from helpers.runs import launch, played, write_run

HEADINGS = [
    "Model details",
    "Intended use",
    "Factors",
    "Metrics",
    "Evaluation data",
    "Training data",
    "Quantitative analyses",
    "Ethical considerations",
    "Caveats and recommendations",
]
SCHEMA = (
    "{classes:[a,'b|<c>'],shape:[2],mean:[50,9000],std:[12,2000],dtype:float64,columns:[age,glucose],"
    "label:kind,units:[years,mg/dl]}"
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run of three sites."""
    folder = tmp_path_factory.mktemp("card")
    draws = np.random.default_rng(0)
    for site, count in (("north", 40), ("south", 60), ("west", 80)):
        kind = draws.integers(2, size=count)
        values = (draws.normal(size=(count, 2)) + 2 * kind[:, None]) * [12, 2000] + [50, 9000]
        table = pd.DataFrame(values, columns=["age", "glucose"])
        table.assign(kind=np.array(["a", "b|<c>"])[kind]).to_csv(folder / f"{site}.csv", index=False)
    sites = ",".join(f"{name}:'{folder / name}.csv'" for name in ("north", "south", "west"))
    overrides = ["dataset=local", f"dataset.schema={SCHEMA}", "num_nodes=3", f"runtime.sites={{{sites}}}"]
    overrides += ["node_test_fraction=0.25", "node_timeout=0.2", "rounds=3", "save=best"]
    overrides += [f"data_root={folder}"]
    overrides += ["privacy=central", "weighting=uniform", "privacy.noise_seed=null", "privacy.clip=5"]
    assert launch(*overrides, f"hydra.run.dir={folder / 'run'}") == 0
    return folder / "run"


def table_after(text: str, heading: str) -> list[list[str]]:
    """Return the cells of the table whose heading begins with a word."""
    lines = text.splitlines()
    start = next(k for k, line in enumerate(lines) if line.startswith(f"| {heading} "))
    rows = []
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("| ").split(" | ")])
    return [rows[0], *rows[2:]]


@pytest.mark.slow
def test_its_numbers_are_those_of_the_files(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["card", str(run)]) == 0
    text = capsys.readouterr().out
    assert [line.removeprefix("## ") for line in text.splitlines() if line.startswith("## ")] == HEADINGS
    about = json.loads((run / "environment.json").read_text())
    rows = pd.read_csv(run / "metrics.csv")
    (description,) = saved_model.descriptions(run).values()
    server_round = int(description["round"])
    assert f"| identity | {about['identity']} |" in text
    assert f"| model of round | {server_round} of 3 |" in text
    trained = {row[0]: row[1:] for row in table_after(text, "site | examples")[1:]}
    for site, contribution in about["contributions"].items():
        assert trained[site] == [
            str(contribution["examples"]),
            str(contribution["updates"]),
            str(contribution["left_out"]),
        ]
    at = rows[(rows["round"] == server_round) & (rows.split == "site-test")]
    heading, *sites = table_after(text, "site | num_examples")
    assert [site[0] for site in sites] == ["north", "south", "west"]
    for site in sites:
        for name, cell in zip(heading[1:], site[1:], strict=True):
            (value,) = at[(at.model == site[0]) & (at.metric == name)].value
            assert float(cell) == pytest.approx(value, rel=1e-3)
    epsilon = rows[rows.metric == "epsilon"].set_index("round").value
    assert f"epsilon {epsilon[server_round]:.4g} for this model and {epsilon[3]:.4g}" in text
    assert "at delta 1e-05" in text
    assert table_after(text, "column")[1:] == [
        ["age", "years", "50.0", "12.0"],
        ["glucose", "mg/dl", "9000.0", "2000.0"],
    ]
    assert "b\\|&lt;c>" in text  # a class' name is no Markdown
    assert text.count(card.FILL_IN) > 8


@pytest.mark.slow
def test_it_is_written_where_it_is_asked_for_and_is_the_same_again(run: Path, tmp_path: Path) -> None:
    texts = set()
    for _ in range(2):
        assert main(["card", str(run), "--out", str(tmp_path / "CARD.md")]) == 0
        texts.add((tmp_path / "CARD.md").read_text())
    assert len(texts) == 1


def test_a_run_that_failed_without_a_model_says_so_and_shows_no_nan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path / "run", "num_nodes=3", 0, [0.5, math.nan], "failed: a | b")
    (tmp_path / "run" / "config.yaml").write_text("num_nodes: 3\nrounds: 9\n")
    assert main(["card", str(tmp_path / "run")]) == 0
    text = capsys.readouterr().out
    assert "has kept no model file" in text
    assert "has not finished: failed: a \\| b" in text
    assert "has diverged" in text
    assert table_after(text, "test set, model")[1] == ["global", "not finite"]


@pytest.mark.slow
def test_files_that_have_changed_since_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    played("num_nodes=3 rounds=1", tmp_path)
    metrics = tmp_path / "metrics.csv"
    metrics.write_bytes(metrics.read_bytes().replace(b"accuracy,0.", b"accuracy,1."))
    assert main(["card", str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "metrics.csv has changed" in line
    assert main(["card", str(tmp_path / "nowhere")]) == 2


@pytest.mark.slow
def test_what_is_off_is_not_in_the_method_and_what_was_chosen_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    played("num_nodes=2 rounds=1 model=softmax strategy=fedexp save=last", tmp_path)
    assert main(["card", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "| strategy | fedexp |" in text
    assert "650 numbers" in text  # 64 inputs and a bias, ten classes
    assert not any(line.startswith(("| mask |", "| server_optimizer |")) for line in text.splitlines())


def test_a_run_that_has_diverged_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path / "run", "num_nodes=3", 0, [0.5, math.nan], "diverged")
    (tmp_path / "run" / "config.yaml").write_text("num_nodes: 3\nrounds: 9\n")
    assert main(["card", str(tmp_path / "run")]) == 0
    text = capsys.readouterr().out
    assert "The run has diverged: its last evaluations are not finite." in text
    assert "has not finished" not in text
