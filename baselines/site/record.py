"""A site's record: budgets that persist over runs and restarts, and the audit log.

It is in the site's own folder (``state`` in its file), readable only by its user:

budget.json   begin, rounds, evaluations and questions of each run; the number of rounds with each noise
              multiplier
audit.jsonl   one line per message; after ten megabytes it becomes audit.jsonl.1, up to .9
prepared/     prepared data of current runs, a folder for each
"""

import json
import math
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from logging import LogRecord
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

from filelock import FileLock
from flwr.app import MessageType

from clients.privacy import is_noise
from strategies.parts.privacy import epsilon
from strategies.shared import protocol

from .policy import Policy, SiteRefusal

BUDGET_FILE, AUDIT_FILE, PREPARED_FOLDER = "budget.json", "audit.jsonl", "prepared"
DAY = 24 * 3600.0  # seconds
MAX_IDLE_SECONDS = 3600.0  # seconds without a message after which a run's prepared data are removed
MAX_LOG_BYTES, MAX_LOG_FILES = 10_000_000, 9  # of the audit log


class SiteRecord:
    """A site's budgets, audit log and prepared data.

    Parameters
    ----------
    policy : the content of the site's file
    """

    def __init__(self, policy: Policy) -> None:
        self.policy, self.folder = policy, policy.state_folder

    def charge(self, run_id: int, message_type: str, config: Mapping[str, Any]) -> None:
        """Count a message against the budgets, before it is handled.

        Raises
        ------
        SiteRefusal : where a budget is used up; then nothing is counted
        """
        with self._locked() as budget:
            run = self._run(budget["runs"], str(run_id))
            if message_type == MessageType.TRAIN:
                self._count(run, "rounds")
                self._spend(budget["spent"], config)
            elif message_type == MessageType.EVALUATE:
                self._count(run, "evaluations")
            elif message_type == protocol.QUESTION:
                self._count(run, "questions")
            else:  # a query fails at once if the first round would exceed the budget
                self._spend(dict(budget["spent"]), config)

    def epsilon(self) -> float:
        """Return the privacy loss of all rounds so far, at the file's delta; 0 if none had noise."""
        with self._locked() as budget:
            return self._epsilon(budget["spent"])

    def prepared(self, run_id: int) -> Path:
        """Return the folder for a run's prepared data; remove those of runs idle for an hour."""
        folder = self.folder / PREPARED_FOLDER / str(run_id)
        for made in (self.folder, folder.parent, folder):
            make_private(made)
        os.utime(folder)
        for other in folder.parent.iterdir():
            if time.time() - other.stat().st_mtime > MAX_IDLE_SECONDS:
                shutil.rmtree(other, ignore_errors=True)
        return folder

    def forget(self, run_id: int) -> None:
        """Remove a run's prepared data."""
        shutil.rmtree(self.folder / PREPARED_FOLDER / str(run_id), ignore_errors=True)

    def write(self, entry: Mapping[str, Any]) -> None:
        """Append a line to the audit log."""
        make_private(self.folder)
        path = self.folder / AUDIT_FILE
        with FileLock(self.folder / ".audit.lock", mode=0o600):
            path.touch(mode=0o600)
            handler = _Log(path, maxBytes=MAX_LOG_BYTES, backupCount=MAX_LOG_FILES, encoding="utf-8")
            line = json.dumps(entry, allow_nan=True)
            handler.emit(LogRecord("audit", 0, "", 0, line.replace("%", "%%"), (), None))
            handler.close()

    def _run(self, runs: dict[str, Any], run_id: str) -> dict[str, Any]:
        """Return the counts of a run; begin new ones if another run may begin."""
        if run_id not in runs:
            most, now = self.policy.max_runs_per_day, time.time()
            recent = sum(now - run["begun"] < DAY for run in runs.values())
            if most is not None and recent >= most:
                raise SiteRefusal(
                    "max_runs_per_day", f"{recent} runs have begun in 24 hours, at most {most}"
                )
            runs[run_id] = {"begun": now, "rounds": 0, "evaluations": 0}
        account: dict[str, Any] = runs[run_id]
        return account

    def _count(self, run: dict[str, Any], what: str) -> None:
        most = self.policy.max_rounds
        run.setdefault(what, 0)  # older budgets have no questions
        if most is not None and run[what] >= most + (what == "evaluations"):
            raise SiteRefusal("max_rounds", f"the run has had {run[what]} {what}, and may have {most}")
        run[what] += 1

    def _spend(self, spent: dict[str, int], config: Mapping[str, Any]) -> None:
        """Count a round with the noise multiplier that the message promises."""
        noise = config.get(protocol.PRIVACY_NOISE) if protocol.PRIVACY in config else None
        most = self.policy.max_epsilon
        if is_noise(noise):
            key = repr(float(noise))  # type: ignore[arg-type]
            spent[key] = spent.get(key, 0) + 1
        elif most is not None:
            raise SiteRefusal("max_epsilon", f"the message's noise is {noise!r}, which cannot be counted")
        if most is not None and (after := self._epsilon(spent)) > most:
            raise SiteRefusal("max_epsilon", f"one more round makes epsilon {after:.3g}, at most {most:g}")

    def _epsilon(self, spent: Mapping[str, int]) -> float:
        """Return the epsilon of rounds with several noise multipliers z: n rounds weigh n / z^2."""
        weight = sum(count / float(noise) ** 2 for noise, count in spent.items())
        return epsilon(1 / math.sqrt(weight), 1, self.policy.delta) if weight else 0.0

    @contextmanager
    def _locked(self) -> Iterator[dict[str, Any]]:
        """Lock the budgets; changes are on disk afterwards, unless an error is raised."""
        make_private(self.folder)
        path = self.folder / BUDGET_FILE
        with FileLock(self.folder / ".budget.lock", mode=0o600):
            try:
                budget = json.loads(path.read_text()) if path.exists() else {"runs": {}, "spent": {}}
                before = json.dumps(budget)
                assert budget.keys() == {"runs", "spent"}
            except (ValueError, AssertionError, AttributeError) as error:
                line = f"{path} is damaged: take it from a copy; it has what was spent"
                raise SiteRefusal("state", line) from error
            yield budget
            if json.dumps(budget) != before:
                fresh = path.with_suffix(".tmp")
                fresh.touch(mode=0o600)
                fresh.write_text(json.dumps(budget))
                os.replace(fresh, path)


class _Log(RotatingFileHandler):
    """A rotating log file that raises errors instead of hiding them."""

    def handleError(self, record: LogRecord) -> None:  # noqa: N802 (logging's name)
        raise


def make_private(folder: Path) -> None:
    """Make a folder that only its user can read.

    Raises
    ------
    SiteRefusal : if it cannot be made
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.chmod(0o700)
    except OSError as error:
        raise SiteRefusal("state", f"{folder} cannot be made ({error.strerror})") from error
