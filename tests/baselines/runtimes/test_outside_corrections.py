"""A strategy of one's own that asks for a correction of one's own: nodes act on it, wherever they run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.checkout import ROOT
from helpers.runs import lines_in

MODULE = """
from dataclasses import dataclass
from typing import ClassVar

from clients import Correction
from strategies import FedAvg, Uniform


@dataclass(kw_only=True, eq=False)
class Pulled(FedAvg):
    mu: float = 1.0

    def train_config(self):
        return {**super().train_config(), "pull": float(self.mu)}


class Pull(Correction):
    config_key: ClassVar[str] = "pull"

    def __init__(self, start):
        self.mu = float(start.config["pull"])
        self.anchor = [p.detach().clone() for p in start.named.values()]

    def transform_gradients(self, parameters):
        for p, a in zip(parameters, self.anchor, strict=True):
            p.grad.add_(p.detach() - a, alpha=self.mu)
"""
PART = """
from dataclasses import dataclass
from typing import ClassVar

from clients import Correction
from strategies import Uniform


@dataclass(frozen=True)
class Curious(Uniform):
    required_metric: ClassVar[str] = "curiosity"


class Curiosity(Correction):
    config_key: ClassVar[str] = "curiosity"
"""
YAML = "defaults: [base]\n_target_: pulling.Pulled\nmu: 1.0\n"
SMALL = "strategy=pulled model=softmax num_nodes=3 rounds=2 partitioner=iid client.local_epochs=2"
# What happens on a machine of Ray's or of a site's: a composed configuration, and a node's training.
NODE = """
from baselines.experiment import config, experiment
from clients import Correction

config.take("told", open({text!r}).read())
_ = experiment.load("told").training
print([kind.__name__ for kind in Correction.asked({{{key!r}: True}})])
"""


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder of options whose classes lie beside it, on the path of every process."""
    (tmp_path / "pulling.py").write_text(MODULE)
    (tmp_path / "curious.py").write_text(PART)
    for group, name, text in (
        ("strategy", "pulled", YAML),
        ("weighting", "curious", "_target_: curious.Curious\n"),
    ):
        (tmp_path / "conf" / group).mkdir(parents=True)
        (tmp_path / "conf" / group / f"{name}.yaml").write_text(text)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(tmp_path)]))
    return tmp_path / "conf"


def python(*words: str) -> str:
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run(lab: Path, name: str, *more: str) -> list[str]:
    folder = lab.parent / name
    own = ("--config-dir", str(lab), *SMALL.split(), f"hydra.run.dir={folder}")
    python("-m", "baselines.run", *own, *more)
    return lines_in(folder)


@pytest.mark.slow
def test_on_ray_they_are_inlines(lab: Path) -> None:
    inline = run(lab, "inline")
    assert inline != run(lab, "without", "strategy.mu=0.0")
    assert run(lab, "ray", "runtime=ray", "runtime.cpus=2") == inline


@pytest.mark.slow
@pytest.mark.parametrize(
    ("setting", "key", "known"),
    [("strategy=pulled", "pull", "Pull"), ("weighting=curious", "curiosity", "Curiosity")],
)
def test_a_node_knows_what_lies_beside_the_strategy_and_its_parts(
    setting: str, key: str, known: str, lab: Path
) -> None:
    compose = (
        f"from baselines.experiment import config; print(config.text({f'{setting} {searched(lab)}'!r}))"
    )
    text = lab.parent / "composed.yaml"
    text.write_text(python("-c", compose))
    assert python("-c", NODE.format(text=str(text), key=key)) == f"['{known}']\n"


@pytest.mark.slow
def test_a_node_without_the_strategy_s_module_says_so(lab: Path) -> None:
    (lab.parent / "pulling.py").unlink()
    script = f"""
from baselines.errors import UserError
from baselines.experiment import experiment
try:
    experiment.load({f"strategy=pulled {searched(lab)}"!r}).training
except UserError as error:
    print(error)
"""
    said = python("-c", script)
    assert said.startswith("pulling.Pulled cannot be imported: ")
    assert said.endswith("(is its folder on PYTHONPATH?)\n")
    assert said.count("\n") == 1


def searched(lab: Path) -> str:
    return f"hydra.searchpath=[file://{lab}]"
