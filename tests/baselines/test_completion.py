"""Tab completion in bash, as eval "$(python -m baselines completion)" sets it up."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.checkout import ROOT

CASES = {
    "florilegium re": "reproduce",
    "florilegium run strategy=fede": "feder fedexp",
    "florilegium run dataset=mnist client.opt": "client.optimizer.",
    "florilegium compare x": "",
    "python -m baselines.i": "baselines.inspect",
    "python -m baselines.run strategy=fede": "feder fedexp",
    "{folder}/python -m baselines.run -m dataset=mnist client.opt": "client.optimizer.",
    "python3 -m baselines.inspect partitioner=dom": "dominant_labels",
    "python -m pytest strategy=fede": "",
    "python baselines/run.p": "",  # bash completes the file
}
PRESS_TAB = """
eval "$(florilegium completion)"
COMP_LINE="$1"; COMP_POINT=${#1}
read -ra COMP_WORDS <<< "${1//=/ = }"
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
name="${COMP_WORDS[0]##*/}"  # bash looks for the whole path, then for the name
$(complete -p "$name" | sed "s/.* -F //; s/ $name$//")
echo "${COMPREPLY[*]}"
"""


@pytest.mark.slow
@pytest.mark.parametrize("line", CASES)
def test_tab_completes(line: str, tmp_path: Path) -> None:
    commands = {"florilegium": " -m baselines", "python": "", "python3": ""}
    for name, arguments in commands.items():
        command = tmp_path / "run" / name  # a folder that has the name of a command
        command.parent.mkdir(exist_ok=True)
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}"{arguments} "$@"\n')
        command.chmod(0o755)
    folder = tmp_path / "run"
    settings = os.environ | {"PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    program = ["bash", "-c", PRESS_TAB, "bash", line.format(folder=folder)]
    done = subprocess.run(program, env=settings, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == CASES[line], done.stderr
