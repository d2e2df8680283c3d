"""Every command of the pages is run, in a fresh copy and a plain shell, or stands here with a reason."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.checkout import ROOT
from helpers.runs import run_command

PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").glob("*/README.md")),
    *sorted((ROOT / "baselines").glob("papers/*/README.md")),
]
ELSEWHERE = {  # what another test runs, by the page and the command
    r"README.md: scripts/": ".ci/run",
    r"docs/development/.*: ": "tests/baselines/bench",
    r"docs/your-own.md: ": "tests/baselines/test_your_own.py",
    r".*: pip install -e \. && flwr run examples/quickstart": "tests/baselines/runtimes/test_quickstart.py",
    r".*: sbatch ": "tests/baselines/runtimes/test_slurm.py",
    r".*: ray job submit ": "tests/baselines/runtimes/test_cluster.py",
    r"docs/deployment.md: (export FLWR|flower-super|flwr run)": "tests/baselines/runtimes/test_by_hand.py",
    r"docs/deployment.md: ": "tests/baselines/federation/test_deployed.py",
    r".*: (flower-supernode|.*baselines.federation )": "tests/baselines/federation/test_sites.py",
    r".*runtime.sites=": "tests/baselines/federation/test_sites.py",
    r".*dataset.name=reviews.csv": "tests/baselines/datasets/test_text.py",
    r".*baselines.reproduce .*--collect-only": "tests/baselines/reproduce/test_page.py",
    r".*runtime=ray": "tests/baselines/runtimes/test_same_metrics.py",
}
NOT_RUN = {  # what no test runs, and why
    r".*dataset=(mnist|cmnist|fmnist|cifar10|cifar100|speech)\b": "it downloads its data",
    r".*baselines.reproduce (?!.*(--dry-run|--collect-only)).*\w+ (table|figure|section|own|kmeans)": (
        "the runs of a table take hours, and their files come from another machine"
    ),
    r".*hydra/sweeper=random_search experiment=selective": "its runs take hours",
    r".*baselines.compare multirun/search": "it compares the runs of that search",
    r".*(logger=tensorboard|hydra/launcher=joblib)": "its package is an extra, which a reader chooses",
    r".*: pip install -e '": "it would change the environment of all other tests",
}
OPEN = re.compile(r"[<…]|\.\.\.(?!/)")  # what a reader fills in
ROUNDS = 3
READERS = Path(sys.executable).parent


def commands() -> list[tuple[str, str]]:
    """Return (page, command) of all console blocks, in their order, without prompts and comments."""
    listed = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for block in re.findall(r"^ *```console\n(.*?)^ *```$", text, flags=re.M | re.S):
            lines = [line.strip() for line in block.replace("\\\n", " ").splitlines()]
            commands_of_page = [
                line.removeprefix("$ ").split("  #")[0].strip() for line in lines if line[:2] == "$ "
            ]
            listed += [
                (page.relative_to(ROOT).as_posix(), one) for one in commands_of_page if not OPEN.search(one)
            ]
    return list(dict.fromkeys(listed))


def reason(page: str, command: str) -> str:
    """Return which test runs a command, or why none does; empty where the test below does."""
    line = f"{page}: {command}"
    listed = [*ELSEWHERE.items(), *NOT_RUN.items()]
    return next((why for key, why in listed if re.match(key, line)), "")


COMMANDS = commands()
RUN = {page: [c for p, c in COMMANDS if p == page and not reason(p, c)] for page, _ in COMMANDS}


def test_what_is_listed_is_there() -> None:
    lines = [f"{page}: {command}" for page, command in COMMANDS]
    assert not [key for key in ELSEWHERE | NOT_RUN if not any(re.match(key, line) for line in lines)]
    assert not [place for place in ELSEWHERE.values() if not (ROOT / place).exists()]
    assert len(COMMANDS) > 80
    assert sum(map(len, RUN.values())) > 15


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of this checkout without what the ignored files of a developer add to it."""
    folder = tmp_path_factory.mktemp("fresh") / "florilegium"
    ignored = (".git", ".venv*", "outputs", "multirun", "__pycache__", ".*_cache", ".hypothesis", "*.pt")
    shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(*ignored))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page, commands in RUN.items() if commands])
def test_the_commands_of_a_page_run_in_their_order(page: str, fresh: Path) -> None:
    for command in RUN[page]:
        status, printed = started(command, fresh)
        assert status == 0, f"{command}\n{printed[-4000:]}"


def started(command: str, folder: Path) -> tuple[int, str]:
    """Return the exit status of a command and what it prints; runs are cut to few rounds."""
    if command.startswith("python -m baselines"):
        words = shlex.split(command)[1:]
        is_run = words[1] == "baselines.run"
        ended = run_command([*words, *[f"rounds={ROUNDS}"] * is_run], folder)
        return ended.returncode, ended.stdout + ended.stderr
    env = {key: value for key, value in os.environ.items() if not key.startswith(("FLWR_", "PYTHON"))}
    env |= {"PATH": os.pathsep.join([str(READERS), env["PATH"]]), "FLWR_TELEMETRY_ENABLED": "0"}
    shell = {"shell": True, "executable": "/bin/bash"}
    run = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=600, **shell)
    return run.returncode, run.stdout + run.stderr
