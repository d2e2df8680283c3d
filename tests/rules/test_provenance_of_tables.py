"""Each number of the papers' tables is of a commit in the history, whose code has the hash beside it."""

import csv
import io
import subprocess
import tarfile
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from baselines.experiment import identity
from helpers.checkout import ROOT
from helpers.source import name_of

TABLES = sorted((ROOT / "baselines" / "papers").glob("*/ours/*.csv"))


@cache
def cells(table: Path) -> set[tuple[str, str]]:
    """Return the commits and source hashes of a table's numbers; none of what is computed from them."""
    with table.open(newline="") as file:
        return {(row["commit"], row["source"]) for row in csv.DictReader(file) if row.get("commit")}


def git(*arguments: str) -> bytes:
    return subprocess.run(["git", "-C", str(ROOT), *arguments], check=True, capture_output=True).stdout


@cache
def history() -> set[str]:
    """Return the commits of the history; none outside git, and where a part of it is missing."""
    try:
        shallow = git("rev-parse", "--is-shallow-repository").strip() == b"true"
        return set() if shallow else set(git("rev-list", "HEAD").decode().split())
    except (OSError, subprocess.CalledProcessError):
        return set()


@cache
def hash_of(commit: str) -> str:
    """Return the source hash of a commit's code."""
    covered = [f":(glob){pattern}" for pattern in identity.HASHED_SOURCES]
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        with tarfile.open(fileobj=io.BytesIO(git("archive", commit, "--", *covered))) as archive:
            archive.extractall(folder, filter="data")
        patch.setattr(identity, "ROOT", Path(folder))
        return identity.source_hash.__wrapped__()


@pytest.mark.exhaustive
@pytest.mark.parametrize("table", TABLES, ids=name_of)
def test_a_number_is_of_the_commit_that_it_names(table: Path) -> None:
    if not history() & {commit for each in TABLES for commit, _ in cells(each)}:
        pytest.skip("this is no clone of the whole history")
    strange = {commit for commit, _ in cells(table)} - history()
    assert not strange, "commit the code first, then compute"
    for commit, source in cells(table):
        assert hash_of(commit) == source, f"{commit}: its code is not what computed this"
