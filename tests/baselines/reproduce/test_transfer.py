"""Runs that come from another machine, with what they say of themselves."""

import io
import shutil
import tarfile
from pathlib import Path

import pandas as pd
import pytest

from baselines.experiment.identity import versions
from baselines.reproduce.__main__ import main
from helpers.finished_runs import finished_run, trials_in

OTHER = {**versions(), "torch": "2.6.0"}


@pytest.fixture
def parcel(papers: Path, tmp_path: Path) -> Path:
    """Return a tar file of three runs: of this torch, of another one, and of no cell."""
    one, two, three = trials_in(tmp_path / "far" / "tiny")
    finished_run(one, 0.75, versions())
    finished_run(two, 0.5, OTHER, name="0123456789abcdef", extra="device=cuda")
    finished_run(three, 0.25, versions(), name="fedcba9876543210", extra="client.optimizer.lr=0.3")
    packed = tmp_path / "runs.tar"
    with tarfile.open(packed, "w") as archive:
        for folder in (tmp_path / "far" / "tiny" / "tiny").iterdir():
            archive.add(folder, folder.name)
    shutil.rmtree(tmp_path / "far")
    return packed


def reproduce(output: Path, *arguments: str) -> int:
    return main(["tiny", "table1", *arguments, "--output", str(output)])


def rows_of(papers: Path) -> pd.DataFrame:
    return pd.read_csv(papers / "tiny" / "ours" / "table1.csv", dtype=str, keep_default_na=False)


@pytest.mark.slow
def test_runs_are_taken_in_with_what_computed_them(
    papers: Path, tmp_path: Path, parcel: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reproduce(tmp_path / "here", "--collect", str(parcel)) == 0
    assert "2 runs taken in; 1 left out" in capsys.readouterr().out
    rows = rows_of(papers)
    assert list(zip(rows.method, rows.value, rows.torch, strict=True)) == [
        ("fedexp", "75", versions()["torch"]),
        ("fedavg", "50", "2.6.0"),
    ]
    assert set(rows.processor) == {"a card"}
    assert "with torch 2.6.0" in (papers / "tiny" / "ours" / "table1.md").read_text()
    assert not list((tmp_path / "here").rglob("latest.pt"))
    assert reproduce(tmp_path / "here", "--collect", str(parcel)) == 0
    assert "0 runs taken in; 3 left out" in capsys.readouterr().out
    pd.testing.assert_frame_equal(rows_of(papers), rows)


@pytest.mark.slow
def test_a_run_that_is_here_stays(papers: Path, tmp_path: Path, parcel: Path) -> None:
    (one, *_) = trials_in(tmp_path / "here")
    finished_run(one, 0.9, versions())
    assert reproduce(tmp_path / "here", "--collect-only") == 0
    assert reproduce(tmp_path / "here", "--collect", str(parcel)) == 0
    assert list(rows_of(papers).value) == ["90", "50"]


def test_what_was_changed_on_the_way_is_left_out(papers: Path, tmp_path: Path, parcel: Path) -> None:
    changed = tmp_path / "changed.tar"
    with tarfile.open(parcel) as old, tarfile.open(changed, "w") as new:
        for member in old.getmembers():
            data = old.extractfile(member).read() if member.isfile() else b""  # type: ignore[union-attr]
            if member.name.endswith("metrics.csv"):
                data = data.replace(b"0.75", b"0.99")
            new.addfile(member, io.BytesIO(data))
    assert reproduce(tmp_path / "here", "--collect", str(changed)) == 0
    assert list(rows_of(papers).value) == ["50"]


def test_a_tar_file_writes_nowhere_else(papers: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.tar"
    with tarfile.open(bad, "w") as archive:
        for name in (
            "../0123456789abcdef/metrics.csv",
            "0123456789abcdef/../../x",
            "0123456789abcdef/run.py",
        ):
            archive.addfile(tarfile.TarInfo(name), io.BytesIO())
    assert reproduce(tmp_path / "here", "--collect", str(bad)) == 2
    assert {path.name for path in tmp_path.iterdir()} == {"bad.tar", "papers"}


def test_export_packs_what_is_finished_without_checkpoints(
    papers: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "out" / "runs.tar"
    assert reproduce(tmp_path / "far", "--export", str(target)) == 2
    assert "no finished run" in capsys.readouterr().err
    one, two, _ = trials_in(tmp_path / "far")
    finished_run(one, 0.75, versions())
    shutil.rmtree(finished_run(two, 0.5, versions()) / "checkpoint")
    (two.folder / "environment.json").write_text('{"status": "running"}')
    assert reproduce(tmp_path / "far", "--export", str(target)) == 0
    with tarfile.open(target) as archive:
        assert {Path(name).parent.name for name in archive.getnames()} == {one.folder.name}
        assert {Path(name).name for name in archive.getnames()} == {
            "environment.json",
            "config.yaml",
            "metrics.csv",
        }
    assert reproduce(tmp_path / "here", "--collect", str(target)) == 0
    assert list(rows_of(papers).value) == ["75"]
    assert reproduce(tmp_path / "here", "--collect", str(papers / "tiny" / "tables.yaml")) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("option", ["--collect", "--export", "--budget"])
def test_a_table_must_be_named(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([option, "1h"]) == 2
    assert capsys.readouterr().err == f"error: {option} 1h: name a paper and one of its tables\n"
