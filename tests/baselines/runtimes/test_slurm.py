"""The recipes of docs/cluster.md, on a SLURM of two nodes that are processes here."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.checkout import ROOT
from helpers.runs import launch

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        os.geteuid() != 0 or not all(map(shutil.which, ("slurmctld", "slurmd", "munged"))),
        reason="a SLURM here takes root, and the packages slurmctld, slurmd, slurm-client and munge",
    ),
]
SETTING = "model=softmax num_nodes=4 rounds=2"
CHOICES = ("strategy=fedavg,fedexp", "seed=1")
RUN = (sys.executable, "-m", "baselines.run", "-m")


def rows_in(folder: Path) -> list[str]:
    """Return metrics.csv without the rows that are times."""
    return [row for row in (folder / "metrics.csv").read_text().splitlines() if "seconds" not in row]


def on_slurm(folder: Path, *command: str) -> None:
    """Run a command on a SLURM that ends with it."""
    ray = folder / "ray"
    ray.write_text(f'#!/bin/sh\nexec {sys.executable} -m ray.scripts.scripts "$@"\n')
    ray.chmod(0o755)
    done = subprocess.run(
        [str(ROOT / "scripts" / "slurm-local"), *command],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "RAY": str(ray)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    log = folder / "log"
    assert done.returncode == 0, done.stdout + done.stderr + (log.read_text() if log.exists() else "")


def hold(sweep: Path) -> None:
    """Hold the runs of a sweep beside inline's."""
    folders = sorted(path.parent for path in sweep.rglob("metrics.csv"))
    assert len(folders) == 2
    for k, folder in enumerate(folders):
        settings = dict(setting.split("=") for setting in folder.name.split(","))
        one = [f"strategy={settings['strategy']}", f"seed={settings['seed']}"]
        expected = sweep.with_name(f"inline{k}")
        assert launch(*SETTING.split(), *one, f"hydra.run.dir={expected}") == 0
        assert rows_in(folder) == rows_in(expected)


def test_a_sweep_on_a_ray_that_has_all_machines_of_a_job(tmp_path: Path) -> None:
    job = ["sbatch", "--wait", "--nodes=2", "--cpus-per-task=1", f"--output={tmp_path / 'log'}"]
    where = ["runtime=ray", "runtime.address=auto", f"hydra.sweep.dir={tmp_path / 'sweep'}"]
    on_slurm(tmp_path, *job, "scripts/ray-on-slurm", *RUN, *SETTING.split(), *CHOICES, *where)
    hold(tmp_path / "sweep")


def test_a_sweep_whose_runs_are_jobs(tmp_path: Path) -> None:
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher")
    slurm = ["hydra/launcher=slurm", "hydra.launcher.partition=all", "hydra.launcher.mem_gb=null"]
    on_slurm(tmp_path, *RUN, *slurm, *SETTING.split(), *CHOICES, f"hydra.sweep.dir={tmp_path / 'sweep'}")
    hold(tmp_path / "sweep")
