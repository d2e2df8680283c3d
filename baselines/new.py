"""python -m baselines.new: begin a method of your own: its code, its option, and a test of both.

    python -m baselines.new FedMine
    python -m baselines.new Pull --kind correction --folder mylab
    PYTHONPATH=. python -m pytest mylab

The method does something from the first minute, so that the test passes: a reduction to FedAvg, and a loop
in plain PyTorch that gives the same model. Change all three together. Exit status: 0, or 2 after a user's
mistake.
"""

if not __package__:  # called by its file, or as python baselines/run.py: in the place of Python's own
    import by_file  # type: ignore[import-not-found]  # noqa: F401

import argparse
import keyword
import re
import sys
from pathlib import Path
from string import Template

from .errors import UserError

STRATEGY = '''"""$name: what is new, in a sentence. Authors, title, venue and year; the equation.

    w[t+1] = w[t] - alpha * (the step of FedAvg)

alpha = 1 is FedAvg.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from strategies import PseudoGradientStrategy, Updates


@dataclass(kw_only=True, eq=False)
class $name(PseudoGradientStrategy):
    """A step of the server that is shorter by a factor.

    Parameters
    ----------
    alpha : the factor, in (0, 1]
    """

    alpha: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.alpha <= 1:
            raise ValueError(f"strategy.alpha={self.alpha} is out of range: expected a number in (0, 1]")

    def take_step(self, server_round: int, updates: Updates) -> tuple[dict[str, float], Tensor]:
        before = self.parameters.clone()  # the step may write over it
        metrics, weights = super().take_step(server_round, updates)
        self.parameters = torch.lerp(before, self.parameters, self.alpha)
        return metrics, weights
'''

CORRECTION = '''"""$name: what is new, in a sentence. Authors, title, venue and year; the equation.

    g <- g + mu w

mu = 0 is FedAvg.
"""

from collections.abc import Sequence

from torch.nn import Parameter

from clients import Correction, RoundStart


class $name(Correction):
    """The gradient of (mu/2) ||w||^2 beside the node's own.

    Parameters
    ----------
    start : the node, its data and the model at the start of the round
    mu : strength, 0 or above
    """

    def __init__(self, start: RoundStart, mu: float) -> None:
        self.mu = mu

    @staticmethod
    def check_settings(mu: float) -> None:
        if mu < 0:
            raise ValueError(f"mu={mu} is out of range: expected 0 or above")

    def transform_gradients(self, parameters: Sequence[Parameter]) -> None:
        for p in parameters:
            if p.grad is not None:
                p.grad.add_(p.detach(), alpha=self.mu)
'''

STRATEGY_OPTION = """defaults: [base]
_target_: $package.$module.$name
alpha: 0.5 # of the step; 1 is FedAvg
"""

CORRECTION_OPTION = """# @package client.corrections
$module:
  _target_: $package.$module.$name
  _partial_: true
  mu: 0.01 # strength; 0 is FedAvg
"""

TEST = '''"""$name reduces to FedAvg, and agrees with a loop in plain PyTorch."""

${first}from pathlib import Path

import torch
from torch.nn.functional import cross_entropy

from baselines import results
from baselines.api import run
from baselines.experiment.experiment import load

from .$module import $name

ROUNDS, RATE, $symbol = 3, 0.1, $value
SETTING = (  # one step on all rows of a node: no batches, whose order a loop would have to repeat
    f"dataset=digits model=softmax num_nodes=3 rounds={ROUNDS} save=last "
    f"client=full_batch client.local_steps=1 client.optimizer.lr={RATE}"
)


def trained(folder: Path, **choices: object) -> list[torch.Tensor]:
    """Return the parameters of the last model."""
    return [*results.model(run(SETTING, folder=folder, **choices).run.iloc[0]).parameters()]


def test_${neutral_name}_is_fedavg(tmp_path: Path) -> None:
    plain, ours = trained(tmp_path), trained(tmp_path, $neutral)
    assert all(torch.equal(p, q) for p, q in zip(plain, ours, strict=True))


def test_it_agrees_with_a_plain_loop(tmp_path: Path) -> None:
    experiment = load(SETTING)
    model, data = experiment.model(), experiment.dataset
    nodes = [torch.from_numpy(rows) for rows, _ in experiment.partitions]
    for _ in range(ROUNDS):
        step = [torch.zeros_like(p) for p in model.parameters()]
        for rows in nodes:
            loss = cross_entropy(model(data.transform(data.train_inputs[rows])), data.train_targets[rows])
            gradients = torch.autograd.grad(loss, [*model.parameters()])
$change            share = len(rows) / sum(map(len, nodes))
            for mean, g in zip(step, gradients, strict=True):
                mean += share * RATE * g
        with torch.no_grad():
            for p, mean in zip(model.parameters(), step, strict=True):
                p -= $step
    ours = trained(tmp_path, $chosen)
    assert all(torch.allclose(p, q, atol=1e-6) for p, q in zip(model.parameters(), ours, strict=True))
    assert not all(torch.equal(p, q) for p, q in zip(trained(tmp_path), ours, strict=True))
'''

KINDS = {
    "strategy": {
        "code": STRATEGY,
        "option": STRATEGY_OPTION,
        "group": "strategy",
        "first": "",
        "symbol": "ALPHA",
        "value": "0.5",
        "neutral_name": "alpha_1",
        "neutral": "strategy=$name(alpha=1.0)",
        "chosen": "strategy=$name(alpha=ALPHA)",
        "change": "",
        "step": "ALPHA * mean",
    },
    "correction": {
        "code": CORRECTION,
        "option": CORRECTION_OPTION,
        "group": "corrections",
        "first": "from functools import partial\n",
        "symbol": "MU",
        "value": "0.5",
        "neutral_name": "mu_0",
        "neutral": "corrections=partial($name, mu=0.0)",
        "chosen": "corrections=partial($name, mu=MU)",
        "change": "            pairs = zip(gradients, model.parameters(), strict=True)\n"
        "            gradients = [g + MU * p.detach() for g, p in pairs]\n",
        "step": "mean",
    },
}


def create(name: str, kind: str, folder: Path) -> list[Path]:
    """Write a method's files into a folder; return them.

    Raises
    ------
    UserError : for a name that no class can have, and where a file is there already
    """
    if not name.isidentifier() or keyword.iskeyword(name) or name == name.lower():
        raise UserError(f"{name!r} is no name for a class: expected a word such as FedMine")
    taken = re.search(rf"^(from|import) .*\b{name}\b", STRATEGY + CORRECTION + TEST, flags=re.M)
    conf = Path(__file__).parents[1] / "conf"
    if taken or (conf / KINDS[kind]["group"] / f"{name.lower()}.yaml").exists():
        raise UserError(f"{name} is the name of something of this project's: choose another")
    if folder.name in ("baselines", "clients", "conf", "strategies"):
        raise UserError(f"--folder {folder}: {folder.name} is a package of this project's: choose another")
    if not folder.name.isidentifier():
        raise UserError(f"--folder {folder}: a package needs a name that Python can import, such as mylab")
    module, text = name.lower(), KINDS[kind]
    words = {"name": name, "module": module, "package": folder.name}
    words |= {
        key: Template(value).substitute(words)
        for key, value in text.items()
        if key not in ("code", "option")
    }
    files = {
        folder / f"{module}.py": text["code"],
        folder / "conf" / text["group"] / f"{module}.yaml": text["option"],
        folder / f"test_{module}.py": TEST,
    }
    if present := [str(file) for file in files if file.exists()]:
        raise UserError(f"{present[0]} is there already: choose another name, or another --folder")
    for file, content in files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(Template(content).substitute(words), encoding="utf-8")
    if not (package := folder / "__init__.py").exists():
        package.write_text('"""Methods of our own."""\n', encoding="utf-8")
    return [*files]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m baselines.new",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", help="of the class, as FedMine")
    parser.add_argument("--kind", choices=KINDS, default="strategy", help="what it is (default: strategy)")
    parser.add_argument("--folder", type=Path, default=Path("mylab"), help="where (default: mylab)")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Begin the method that the command line names; return the exit status."""
    options = _parser().parse_args(arguments)
    try:
        files = create(options.name, options.kind, options.folder)
    except (UserError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for file in files:
        print(file)
    option = f"{KINDS[options.kind]['group']}={options.name.lower()}"
    parent = options.folder.parent
    print(f"test: PYTHONPATH={parent} python -m pytest {files[-1]}")
    print(f"run:  PYTHONPATH={parent} python -m baselines.run --config-dir {options.folder}/conf {option}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
