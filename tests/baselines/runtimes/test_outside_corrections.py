"""A strategy of one's own that asks for a correction of one's own: nodes act on it, wherever they run."""

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from baselines.errors import UserError
from baselines.experiment.experiment import load
from baselines.experiment.preflight import check
from clients.round import requested_corrections
from helpers.checkout import ROOT
from helpers.runs import launch, lines_in

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
YAML = """defaults: [base]
_target_: pulling.Pulled
mu: 1.0
node_corrections: [{_target_: pulling.Pull}]
"""
OF_PART = "_target_: curious.Curious\nnode_corrections: [{_target_: curious.Curiosity}]\n"
SMALL = "strategy=pulled model=softmax num_nodes=3 rounds=2 partitioner=iid client.local_epochs=2"
ONE_LINE = r"\A[^\n]+\Z"
COMPOSE = "import sys; from baselines.experiment import config; print(config.export_composed(sys.argv[1]))"
# What happens on a machine of Ray's or of a site's: a composed configuration, and a node's training.
NODE = """
from baselines.experiment import config, experiment
from clients.round import requested_corrections

config.register_composed("told", open({text!r}).read())
known = experiment.load("told").node(0).known_corrections
print([kind.__name__ for kind in requested_corrections({{{key!r}: True}}, known)])
"""


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder of options whose classes lie beside it, on the path of this and every process."""
    (tmp_path / "pulling.py").write_text(MODULE)
    (tmp_path / "curious.py").write_text(PART)
    for group, name, text in (
        ("strategy", "pulled", YAML),
        ("weighting", "curious", OF_PART),
    ):
        (tmp_path / "conf" / group).mkdir(parents=True)
        (tmp_path / "conf" / group / f"{name}.yaml").write_text(text)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(tmp_path)]))
    monkeypatch.syspath_prepend(tmp_path)
    for module in ("pulling", "curious"):
        monkeypatch.delitem(sys.modules, module, raising=False)  # another test's
    return tmp_path / "conf"


def python(*words: str) -> str:
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def overrides(lab: Path, name: str) -> tuple[str, ...]:
    return "--config-dir", str(lab), *SMALL.split(), f"hydra.run.dir={lab.parent / name}"


def run(lab: Path, name: str, *more: str) -> list[str]:
    assert launch(*overrides(lab, name), *more) == 0
    return lines_in(lab.parent / name)


@pytest.mark.slow
def test_on_ray_they_are_inlines(lab: Path) -> None:
    inline = run(lab, "inline")
    assert inline != run(lab, "without", "strategy.mu=0.0")
    python("-m", "baselines.run", *overrides(lab, "ray"), "runtime=ray", "runtime.cpus=2")
    assert lines_in(lab.parent / "ray") == inline


@pytest.mark.slow
@pytest.mark.parametrize(
    ("setting", "key", "known"),
    [("strategy=pulled", "pull", "Pull"), ("weighting=curious", "curiosity", "Curiosity")],
)
def test_a_node_knows_what_the_files_of_the_strategy_and_its_parts_name(
    setting: str, key: str, known: str, lab: Path
) -> None:
    text = lab.parent / "composed.yaml"
    text.write_text(python("-c", COMPOSE, f"{setting} {searched(lab)}"))
    assert python("-c", NODE.format(text=str(text), key=key)) == f"['{known}']\n"


@pytest.mark.slow
def test_a_node_knows_a_compression_of_the_user_s_own(lab: Path) -> None:
    (lab / "compression").mkdir()
    (lab / "compression" / "mine.yaml").write_text("_target_: squeezed.Mine\nshare: 0.5\n")
    (lab.parent / "squeezed.py").write_text(
        "from strategies import TopK\nclass Mine(TopK):\n    kind = 'mine'\n"
    )
    text = lab.parent / "composed.yaml"
    text.write_text(python("-c", COMPOSE, f"compression=mine {searched(lab)}"))
    script = f"""
from baselines.experiment import config, experiment
from strategies.shared.codecs import requested_compression
config.register_composed("told", open({str(text)!r}).read())
known = experiment.load("told").node(0).known_compressions
print(requested_compression({{"compression": "mine", "compression-share": 0.5}}, known).kind)
try:
    requested_compression({{"compression": "mine", "compression-share": 0.5}})
except ValueError as error:
    print(error)
"""
    kind, refusal = python("-c", script).splitlines()
    assert kind == "mine"
    assert refusal.startswith(
        "the server asks for compression='mine', and this node knows "
    )  # importing is not enough


@pytest.mark.slow
def test_a_node_without_the_strategy_s_module_says_so(lab: Path) -> None:
    (lab.parent / "pulling.py").unlink()
    with pytest.raises(UserError, match=ONE_LINE) as refused:
        _ = load(f"strategy=pulled {searched(lab)}").known_corrections
    line = str(refused.value)
    assert line.startswith("pulling.Pull cannot be imported: ")
    assert line.endswith("(is its folder on PYTHONPATH?)")


@pytest.mark.parametrize(
    ("named", "line"),
    [
        (
            "[{_target_: pulling.Pulled}]",
            "strategy.node_corrections: pulling.Pulled is not a Correction with",
        ),
        (
            "[{_target_: clients.Moon}]",
            "strategy.node_corrections: clients.Moon is not a Correction with a",
        ),
        ("[pulling.Pull]", "strategy.node_corrections has pulling.Pull: expected a list of classes, [{_ta"),
        ("[{_target_: pulling.Pull, mu: 1}]", "their settings come with the message"),
        ("[]", "Pulled asks nodes for 'pull', which no correction reads: name its class in the strategy's"),
    ],
)
def test_what_no_node_could_act_on_is_refused_in_one_line(named: str, line: str, lab: Path) -> None:
    text = YAML.replace("[{_target_: pulling.Pull}]", named)
    (lab / "strategy" / "pulled.yaml").write_text(text)
    with pytest.raises(UserError, match=ONE_LINE) as refused:
        check(load(f"strategy=pulled {searched(lab)}"))
    assert line in str(refused.value)


@pytest.mark.usefixtures("lab")
def test_importing_a_correction_lets_no_message_ask_for_it() -> None:
    for module in ("pulling", "curious"):
        import_module(module)
    assert not requested_corrections({"pull": True, "curiosity": True})


def searched(lab: Path) -> str:
    return f"hydra.searchpath=[file://{lab}]"
