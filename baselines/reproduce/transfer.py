"""Transfer finished runs from one machine to another, as a tar file.

    python -m baselines.reproduce gma table4_4 --export runs.tar       # there
    python -m baselines.reproduce gma table4_4 --collect runs.tar      # here

The file holds environment.json, config.yaml and metrics.csv of each run, and its checkpoint if the table's
number is measured on that. A run is accepted if its configuration is that of a cell. Its versions and
device may differ from this machine's: each row names its own.
"""

import dataclasses
import re
import shlex
import shutil
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from baselines.engine.checkpoint import LATEST_CHECKPOINT
from baselines.engine.environment import ENDED_STATUSES, find_damage, read_environment
from baselines.errors import UserError
from baselines.experiment.identity import Variants

from .paper_tables import PaperTable
from .plan import Trial, says_where

FILES = ("environment.json", "config.yaml", "metrics.csv")
RUN = re.compile(r"[0-9a-f]{16}")  # a run folder's name: its identity


def export(table: PaperTable, finished: Sequence[Trial], target: Path) -> int:
    """Pack the runs of these trials into a tar file; return how many.

    Raises
    ------
    UserError : if there is no run, or one is damaged
    """
    folders = list(dict.fromkeys(trial.folder for trial in finished))
    if not folders:
        raise UserError(f"--export {target}: this machine has no finished run of these cells")
    for folder in folders:
        if wrong := find_damage(folder):
            raise UserError(f"{folder}: {wrong}; remove it and run it again")
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.with_name(f"{target.name}.tmp")
    with tarfile.open(fresh, "w") as archive:
        for folder in folders:
            for name in _files(table):
                if (folder / name).exists():
                    archive.add(folder / name, f"{folder.name}/{name}")
    fresh.replace(target)
    return len(folders)


def unpack_archive(table: PaperTable, source: Path) -> Path:
    """Unpack a tar file's run folders into a new temporary folder, which the caller must remove.

    Raises
    ------
    UserError : for any other file, or one without runs
    """
    folder = Path(tempfile.mkdtemp())
    try:
        with tarfile.open(source) as archive:
            for member in archive:
                run, _, name = member.name.partition("/")
                if RUN.fullmatch(run) and name in _files(table) and member.isfile():
                    archive.extract(member, folder, filter="data")
    except (OSError, tarfile.TarError) as error:
        shutil.rmtree(folder)
        raise UserError(f"--collect {source}: {error}; expected a file that --export wrote") from error
    if not any(folder.iterdir()):
        shutil.rmtree(folder)
        raise UserError(f"--collect {source}: there is no run in it")
    return folder


def seeds_in(folder: Path) -> list[int]:
    """Return the seeds of the finished runs in a folder."""
    return sorted(
        {int(content["seed"]) for content in map(read_environment, folder.iterdir()) if _finished(content)}
    )


def import_runs(trials: Sequence[Trial], folder: Path, output: Path) -> Iterator[Trial]:
    """Move the finished runs of these trials into ``output``; yield each trial with its run's folder.

    Damaged runs, and runs of other trials, stay where they are.
    """
    by_config: dict[str | None, list[Trial]] = {}  # several cells may share a setting
    for trial in trials:
        by_config.setdefault(trial.config, []).append(trial)
    for run in sorted(folder.iterdir()):
        content = read_environment(run)
        if not _finished(content) or content.get("identity") != run.name or find_damage(run):
            continue
        own = by_config.get(_config(content), [])
        if not own:
            continue
        target = output / run.name
        if not target.exists():  # an existing run is kept
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(run, target)
        yield from (dataclasses.replace(trial, folder=target) for trial in own)


def _files(table: PaperTable) -> tuple[str, ...]:
    return (*FILES, LATEST_CHECKPOINT.as_posix()) if table.measure else FILES


def _finished(content: Mapping[str, object]) -> bool:
    return content.get("status") in ENDED_STATUSES


def _config(content: Mapping[str, object]) -> str | None:
    """Return the hash of a run's configuration, the same on any machine; None if it is invalid here."""
    overrides = [each for each in shlex.split(str(content["overrides"])) if not says_where(each)]
    try:
        return Variants(overrides).config_hash()
    except UserError:  # from other code
        return None
