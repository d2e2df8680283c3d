"""submit: check an experiment here, send it to a SuperLink, and end as it ends there."""

import json
import os
import re
import shlex
import subprocess
import tempfile
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from baselines.apps import REFUSAL_START
from baselines.engine.metrics import HAS_DIVERGED
from baselines.errors import RunDiverged, RunFailed, UserError
from baselines.experiment import closed
from baselines.experiment.experiment import load as load_experiment
from baselines.experiment.overrides import ROOT, inline_schema, require_keys
from baselines.experiment.preflight import check
from baselines.runtimes import commands
from baselines.runtimes.staging import copy_app

FOLDERS = ("hydra.run.dir", "hydra.sweep.dir", "hydra.sweep.subdir")  # where baselines.run writes
QUERY_SECONDS = 2.0  # seconds between two queries of the run's status
MAX_SILENT_SECONDS = 120.0  # seconds without an answer after which the SuperLink counts as gone


def submit(link: str, overrides: Sequence[str], output: str) -> None:
    """Submit an experiment, show its log, and return when it has finished.

    Parameters
    ----------
    link : the SuperLink's name in Flower's ``config.toml``
    output : the run's folder below the SuperLink's folder of runs; empty for its id

    Raises
    ------
    UserError : for an experiment refused here or by the SuperLink
    RunFailed : for one that did not finish
    RunDiverged : for one whose last evaluation is not finite
    """
    commands.require_app(ROOT, "federation submit")
    _check_link(link)
    if ".." in PurePosixPath(output).parts:
        raise UserError(
            f"--output {output}: expected a folder below the one in which the SuperLink keeps runs"
        )
    _check_read(require_keys(list(overrides)))
    submitted = shlex.join(map(inline_schema, overrides))
    experiment = load_experiment(submitted)
    if experiment.settings.resume and not output:
        raise UserError(
            "resume=true: give the folder of the run that goes on, --output NAME; without it each run has "
            "a new one"
        )
    check(experiment)
    submitted = experiment.without_references()
    closed.check(submitted, closed.own_targets())
    with tempfile.TemporaryDirectory() as folder:
        run_config = Path(folder) / "run.toml"
        run_config.write_text(commands.run_config(submitted, output), encoding="utf-8")
        app = copy_app(Path(folder) / "app")
        run, refusal, divergence = _follow(commands.submit(app, link, run_config))
    status = _has_ended(link, run)
    if status == "finished:completed":
        where = output or run
        print(f"run {run}: finished; its results are on the SuperLink's machine, in its outputs: {where}")
    elif refusal:
        raise UserError(refusal)
    elif divergence:
        raise RunDiverged(f"run {run}: {divergence}")
    else:
        raise RunFailed(f"run {run}: {status}; its log: flwr log {run} {link}")


def _check_link(link: str) -> None:
    """Refuse a name that is not in Flower's configuration."""
    file = Path(os.environ.get("FLWR_HOME", Path.home() / ".flwr")) / "config.toml"
    try:
        links = tomllib.loads(file.read_text()).get("superlink", {})
    except (OSError, ValueError) as error:
        raise UserError(
            f"{file} cannot be read ({error}): provision prints what belongs into it"
        ) from error
    if not isinstance(links.get(link), dict):
        known = ", ".join(name for name, section in links.items() if isinstance(section, dict))
        raise UserError(f"{file} has no [superlink.{link}]: expected {known or 'a section, see provision'}")


def _check_read(overrides: Sequence[str]) -> None:
    """Refuse settings that a submitted run ignores, and several runs at once."""
    for override in overrides:
        key = override.lstrip("+~").partition("=")[0]
        group = re.split("[./@]", key)[0]
        if group == "hydra":
            instead = "give --output NAME" if key in FOLDERS else "leave it out"
            raise UserError(f"{key} is not read by submit: {instead}")
        if group == "runtime":
            by = "what submit sends is played by the SuperLink's sites"
            raise UserError(f"{override}: {by}: leave {key} out")
        if _sweeps(override):
            raise UserError(f"{override} means several experiments: submit sends one at a time")


def _sweeps(override: str) -> bool:
    """Say whether an override sweeps over values; unreadable ones are refused later."""
    try:
        return OverridesParser.create().parse_override(override).is_sweep_override()
    except HydraException:
        return False


def _follow(command: list[str]) -> tuple[str, str, str]:
    """Run a command and echo its output; return the run's id, the refusal and the divergence, empty if
    none.

    Raises
    ------
    RunFailed : when it started no run, with its output
    """
    run = refusal = divergence = ""
    lines = []
    with subprocess.Popen(
        command, env=commands.environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line.strip("│╭╮╰╯─ \n"))  # Flower draws boxes around errors
            if match := re.search(r"Successfully started run (\d+)", line):
                run = match[1]
            if REFUSAL_START in line:
                refusal = line.partition(REFUSAL_START)[2].strip()
            if HAS_DIVERGED in line:
                divergence = f"{HAS_DIVERGED}{line.partition(HAS_DIVERGED)[2]}".strip()
    if not run:
        raise RunFailed(f"no run was started: {' '.join(' '.join(lines).split())}")
    return run, refusal, divergence


def _has_ended(link: str, run: str) -> str:
    """Wait until the run has ended, as its log may break off before; return its status."""
    heard, status = time.monotonic(), "no answer"
    while time.monotonic() - heard < MAX_SILENT_SECONDS:
        listing = subprocess.run(
            [*commands.runs(link), "--run-id", run],
            env=commands.environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        try:
            status = str(json.loads(listing.stdout)["runs"][0]["status"])
            heard = time.monotonic()
        except (ValueError, LookupError):
            pass
        if status.startswith("finished"):
            return status
        time.sleep(QUERY_SECONDS)
    return f"no answer for {MAX_SILENT_SECONDS:.0f} s; it was {status}"
