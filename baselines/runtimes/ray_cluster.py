"""Join a Ray cluster, and send the code there."""

import contextlib
import logging
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import ray

from baselines.engine import signals
from baselines.errors import UserError

from .staging import copy_code

logger = logging.getLogger("flwr.grids")
PATIENCE = 10  # seconds for a cluster's head to answer
PROBE_SECONDS = 120.0  # seconds for the program that asks it, which starts slowly on a busy machine
SAME = "install the same Ray and Python on every machine"
OVERRIDE = "RAY_OVERRIDE_JOB_RUNTIME_ENV"  # named in Ray's error if the job already has a folder
OF_JOB = (
    "the job has brought a folder with code of its own (ray job submit --working-dir): set "
    "runtime.code=installed to use that"
)


@contextlib.contextmanager
def join_cluster(address: str, code: str, modules: Sequence[str]) -> Iterator[None]:
    """Join a cluster within this context.

    Parameters
    ----------
    address : of the cluster's head
    code : ``staged`` sends this project's code to the cluster; ``installed`` uses the code there
    modules : further folders of Python files to send

    Raises
    ------
    UserError : when no cluster answers at the address, or its Ray or Python has another version
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        with signals.restore_handlers():
            _answers(address)
            _join(address, {"working_dir": _stage_code(Path(folder), modules)} if code == "staged" else {})
        try:
            yield
        finally:
            ray.shutdown()


def _join(address: str, travelling: dict[str, Any]) -> None:
    try:
        ray.init(address=address, runtime_env=travelling, logging_level=logging.ERROR)
    except (RuntimeError, ConnectionError, ValueError) as error:  # RuntimeError: other versions
        if OVERRIDE in str(error):
            raise UserError(f"runtime.address={address}: {OF_JOB}") from error
        advice = f"; {SAME}" if "mismatch" in str(error) else ""
        raise UserError(f"runtime.address={address}: {error}{advice}") from error


def _answers(address: str) -> None:
    """Refuse an address where no cluster answers in time; Ray itself would try for minutes."""
    what = f"runtime.address={address}"
    if "://" in address:
        raise UserError(f"{what}: expected host:port or auto; start the run on a machine of the cluster")
    if address != "auto":
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            raise UserError(f"{what}: expected host:port, as ray start --head prints it, or auto")
        try:
            socket.create_connection((host, int(port)), PATIENCE).close()
        except (OSError, OverflowError) as error:
            raise UserError(
                f"{what}: nobody answers there ({error}); is the cluster's head running?"
            ) from error
        _is_ray(address)


def _is_ray(address: str) -> None:
    """Refuse an address where no head with this Ray and Python answers a separate program."""
    command = [sys.executable, "-m", "ray.scripts.scripts", "health-check", "--address", address]
    environment = os.environ | {"RAY_py_gcs_connect_timeout_s": str(PATIENCE)}
    try:
        done = subprocess.run(
            command, env=environment, timeout=PROBE_SECONDS, capture_output=True, check=False, text=True
        )
    except subprocess.TimeoutExpired as error:
        raise UserError(
            f"runtime.address={address}: Ray did not answer within {PROBE_SECONDS:g} s"
        ) from error
    if done.returncode != 0:
        other = re.search("Ray version mismatch: .*", done.stderr)
        last = done.stderr.strip().rpartition("\n")[2]  # the error of a traceback
        reason = f"no Ray cluster answered there ({last}); is it where ray start --head listens?"
        if other:
            reason = f"{other[0]}; {SAME}"
        raise UserError(f"runtime.address={address}: {reason}")


def _stage_code(folder: Path, modules: Sequence[str]) -> str:
    """Copy the project's and the user's code into a folder; return it."""
    copy_code(folder)
    for module in modules:
        if not Path(module).is_dir():
            raise UserError(f"runtime.modules: there is no folder {module}")
        shutil.copytree(module, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    return str(folder)
