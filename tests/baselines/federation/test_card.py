"""A model card says what the run's files say, and marks what they do not."""

from pathlib import Path

import pytest
from runs import launch, metrics_in

from baselines.federation.__main__ import main
from baselines.federation.card import FILL_IN


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    asked = "dataset=digits model=softmax num_nodes=2 rounds=2 node_test_fraction=0.25 save=last"
    assert launch(*asked.split(), "strategy=fedexp", f"hydra.run.dir={folder}") == 0
    return folder


def test_its_numbers_are_those_of_the_run(run: Path, tmp_path: Path) -> None:
    card = tmp_path / "CARD.md"
    assert main(["card", str(run), "--out", str(card)]) == 0
    text = card.read_text()
    rows = metrics_in(run)
    last = rows[(rows["round"] == 2) & (rows.metric == "accuracy") & (rows.split == "test")]
    assert f"{last.value.item():.4g}" in text
    assert "| strategy | fedexp |" in text
    assert "650 numbers" in text  # 64 inputs and a bias, ten classes
    assert text.count(FILL_IN) > 8
    assert f"Primary uses: {FILL_IN}" in text


def test_what_is_no_run_has_no_card(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["card", str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    (run / "metrics.csv").write_text("round,split,model,metric,value\n2,test,global,accuracy,1.0\n")
    assert main(["card", str(run)]) == 2  # a number that no run wrote
