"""No number is taken from a run whose files have changed since it finished."""

from pathlib import Path

import pandas as pd
import pytest

from baselines.experiment.identity import versions
from baselines.reproduce.__main__ import main
from baselines.reproduce.plan import Trial, plan, select, table_of
from helpers.checkout import ROOT
from helpers.finished_runs import finished_run, trials_in


def change(run: Path) -> None:
    metrics = run / "metrics.csv"
    metrics.write_text(metrics.read_text().replace(",accuracy,0.", ",accuracy,9."))


@pytest.fixture
def one_and_two(tmp_path: Path) -> tuple[Trial, Trial]:
    """Return two trials that have run; the files of the second have changed since."""
    one, two, _ = trials_in(tmp_path / "runs")
    finished_run(one, 0.75, versions())
    change(finished_run(two, 0.5, versions()))
    return one, two


def values(papers: Path) -> list[str]:
    rows = pd.read_csv(papers / "tiny" / "ours" / "table1.csv", dtype=str, keep_default_na=False)
    return list(rows.value)


def test_a_damaged_run_is_named_and_gives_no_number(
    papers: Path,
    one_and_two: tuple[Trial, Trial],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    one, two = one_and_two
    collecting = ["tiny", "table1", "--seeds", "0", "--output", str(tmp_path / "runs")]
    assert main([*collecting, "--collect-only"]) == 0
    assert values(papers) == ["75"]
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("damaged"))
    assert line.startswith(f"damaged, so not finished: {two.label}: metrics.csv has changed since the run")
    assert str(two.folder) in line
    assert main([*collecting, "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert two.command in out
    assert one.command not in out


def test_a_damaged_run_is_not_exported(
    papers: Path,
    one_and_two: tuple[Trial, Trial],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, two = one_and_two
    target = tmp_path / "runs.tar"
    assert main(["tiny", "table1", "--export", str(target), "--output", str(tmp_path / "runs")]) == 2
    assert capsys.readouterr().err.startswith(f"error: {two.folder}: metrics.csv has changed since")
    assert not list(tmp_path.glob("*.tar*"))


@pytest.mark.slow
def test_a_damaged_run_is_made_whole(papers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    table = table_of("tiny", "table1")
    (trial,) = plan(table, select(table, "rate=0.1"), [0], "full", [], tmp_path)
    running = ["tiny", "table1", "--where", "rate=0.1", "--seeds", "0", "--output", str(tmp_path)]
    assert main(running) == 0
    whole = values(papers)
    for more in ([], ["--rerun"]):
        (papers / "tiny" / "ours" / "table1.csv").unlink()
        (trial.folder / "metrics.csv").write_text(
            "round,split,model,metric,value\n4,test,global,accuracy,1\n"
        )
        (trial.folder / "checkpoint" / "latest.pt").unlink()
        assert main([*running, *more]) == 0
        assert values(papers) == whole, more
