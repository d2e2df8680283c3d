"""Tab completion in bash, as eval "$(florilegium completion)" sets it up."""

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
}
PRESS_TAB = """
eval "$(florilegium completion)"
COMP_LINE="$1"; COMP_POINT=${#1}
read -ra COMP_WORDS <<< "${1//=/ = }"
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_florilegium
echo "${COMPREPLY[*]}"
"""


@pytest.mark.slow
@pytest.mark.parametrize("line", CASES)
def test_tab_completes(line: str, tmp_path: Path) -> None:
    command = tmp_path / "florilegium"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m baselines "$@"\n')
    command.chmod(0o755)
    settings = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    program = ["bash", "-c", PRESS_TAB, "bash", line]
    done = subprocess.run(program, env=settings, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == CASES[line], done.stderr
