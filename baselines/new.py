"""python -m baselines.new NAME: begin a method of your own.

    python -m baselines.new FedMine
    python -m baselines.new Pull --kind correction --folder mylab
    python -m baselines.new FedPush --kind strategy-with-correction
    python -m baselines.new Mixed --kind personal
    PYTHONPATH=. python -m pytest mylab

It writes a class, the option that chooses it, and a test. The method works as it is, so the test passes: it
checks the reduction to FedAvg, and compares with a loop in plain PyTorch. Change the three together.

Exit status: 0, or 2 after a user's mistake.
"""

if not __package__:  # called by its file
    import by_file  # type: ignore[import-not-found]  # noqa: F401

import argparse
import keyword
import re
import sys
from pathlib import Path
from string import Template

from .errors import UserError
from .help import HelpParagraphs

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

MOMENTUM = '''"""$name: what is new, in a sentence. Authors, title, venue and year; the equation.

    node:    g <- alpha g + (1 - alpha) m                       in each of its steps
    server:  m <- (1/K) sum_k Delta_k / (rate steps)            kept, and sent beside the model

alpha = 1 is FedAvg with uniform weights.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from flwr.app import ConfigScalar
from torch import Tensor
from torch.nn import Parameter

from clients import Correction, RoundStart
from strategies import PseudoGradientStrategy, Uniform, Updates, Weighting

ALPHA = "$module-alpha"  # of the message's configuration
MOMENTUM = "$module-momentum"  # the message's record with m


@dataclass(kw_only=True, eq=False)
class $name(PseudoGradientStrategy):
    """FedAvg that keeps a momentum, which is in its nodes' steps.

    Parameters
    ----------
    alpha : how much a node's own gradient counts, in (0, 1]
    """

    sent_record: ClassVar[str | None] = MOMENTUM  # carries self.server_vector, zeros at the start
    required_metrics: ClassVar[tuple[str, ...]] = ("learning-rate", "local-steps")
    weighting: Weighting = Uniform()
    alpha: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.alpha <= 1:
            raise ValueError(f"strategy.alpha={self.alpha} is out of range: expected a number in (0, 1]")

    def train_config(self) -> dict[str, ConfigScalar]:
        return {**super().train_config(), ALPHA: float(self.alpha)}

    def take_step(self, server_round: int, updates: Updates) -> tuple[dict[str, float], Tensor]:
        rates, steps = (updates.metrics[name] for name in self.required_metrics)
        momentum = updates.mean(1 / (rates * steps * len(steps)))  # before the step writes over it
        metrics, weights = super().take_step(server_round, updates)
        self.server_vector = momentum
        return metrics, weights


class ${name}Correction(Correction):
    """What the nodes do in a round whose message asks for it."""

    config_key: ClassVar[str] = ALPHA
    shares_all: ClassVar[bool] = True  # a parameter that stays at its node has no m

    def __init__(self, start: RoundStart) -> None:
        self.alpha = float(start.config[ALPHA])  # type: ignore[arg-type]
        self.momentum = start.tensors(MOMENTUM)

    @classmethod
    def uses_displacement(cls, config: Mapping[str, object]) -> bool:
        return True  # the server divides it by rate and steps

    def transform_gradients(self, parameters: Sequence[Parameter]) -> None:
        for p, m in zip(parameters, self.momentum, strict=True):
            if p.grad is not None:
                p.grad.mul_(self.alpha).add_(m, alpha=1 - self.alpha)
'''

PERSONAL = '''"""$name: what is new, in a sentence. Authors, title, venue and year; the equation.

    share w[t,k] + (1 - share) w[t+1]          what node k is judged by; w[t,k] is where its round ended

share = 0 is FedAvg.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from flwr.app import RecordDict
from torch import nn

from clients import Examples, LocalUpdate, Personal, Task
from strategies.shared.arrays import to_array_record, values_of

KEY = "$module"  # of the node's state


@dataclass(frozen=True)
class $name(Personal):
    """A mixture of the server's model and the node's last.

    Parameters
    ----------
    share : of its own, in [0, 1]
    """

    remembers: ClassVar[bool] = True
    share: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise ValueError(f"client.personal.share={self.share} is out of range: expected a number in [0, 1]")

    def train(self, update: LocalUpdate) -> dict[str, float]:
        metrics = update.run()
        assert update.memory is not None
        named = update.model.named_parameters()
        update.memory[KEY] = to_array_record({name: p.detach().clone() for name, p in named})
        return metrics

    @torch.no_grad()
    def personalise(
        self, model: nn.Module, examples: Examples, task: Task, batch_size: int | None, state: RecordDict
    ) -> None:
        own = state.array_records.get(KEY)  # None before the node's first round
        for name, p in model.named_parameters() if own is not None else ():
            p.lerp_(values_of(own[name]).to(p), self.share)
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

MOMENTUM_OPTION = """defaults:
  - base
  - override /weighting@_global_.weighting: uniform
_target_: $package.$module.$name
alpha: 0.5 # of a node's own gradient; 1 is FedAvg
node_corrections: [{_target_: $package.$module.${name}Correction}]
"""

PERSONAL_OPTION = """# @package client
personal:
  _target_: $package.$module.$name
  share: 0.5 # of its own model; 0 is FedAvg
"""

START = '''"""$name reduces to FedAvg, and agrees with a loop in plain PyTorch."""

from pathlib import Path

import torch
from torch.nn.functional import cross_entropy

from baselines import results
from baselines.api import run
from baselines.experiment.experiment import load

ROUNDS, RATE, $symbol = 3, 0.1, 0.5
SETTING = (  # one step on all rows of a node: no batches, whose order a loop would have to repeat
    f"dataset=digits model=softmax num_nodes=3 rounds={ROUNDS} save=last node_test_fraction=0.2 "
    f"client=full_batch client.local_steps=1 client.optimizer.lr={RATE} "
    f"'hydra.searchpath=[\\"file://{Path(__file__).resolve().parent}/conf\\"]'"
)


def trained(folder: Path, choice: str = "$basis") -> tuple[list[torch.Tensor], float]:
    """Return the last model's parameters, and its loss on the nodes' own test rows."""
    frame = run(f"{SETTING} {choice}", folder=folder)
    loss = results.last(frame, "loss", "node-test").value.iloc[0]
    return [*results.model(frame.run.iloc[0]).parameters()], loss


def test_${neutral_name}_is_fedavg(tmp_path: Path) -> None:
    plain, loss = trained(tmp_path)
    ours, own_loss = trained(tmp_path, "$neutral")
    assert all(torch.equal(p, q) for p, q in zip(plain, ours, strict=True))
    assert own_loss == loss


def test_it_agrees_with_a_plain_loop(tmp_path: Path) -> None:
    experiment = load(SETTING)
    model, data = experiment.model(), experiment.dataset
    nodes = [tuple(map(torch.from_numpy, rows)) for rows in experiment.partitions]  # training, testing

    def loss_on(rows: torch.Tensor) -> torch.Tensor:
        return cross_entropy(model(data.transform(data.train_inputs[rows])), data.train_targets[rows])

$before    for _ in range(ROUNDS):
        step = [torch.zeros_like(p) for p in model.parameters()]
$round        for rows, _ in nodes:
            gradients = torch.autograd.grad(loss_on(rows), [*model.parameters()])
$change            for mean, g in zip(step, gradients, strict=True):
                mean += $share * RATE * g
        with torch.no_grad():
            for p, mean in zip(model.parameters(), step, strict=True):
                p -= $step
$after    $measured = trained(tmp_path, f"$chosen")
    assert all(torch.allclose(p, q, atol=1e-6) for p, q in zip(model.parameters(), ours, strict=True))
'''

END = """    assert not all(torch.equal(p, q) for p, q in zip(trained(tmp_path)[0], ours, strict=True))
"""

PERSONAL_END = """    total, shared = 0.0, [p.detach().clone() for p in model.parameters()]
    with torch.no_grad():
        for (_, rows), own in zip(nodes, ends, strict=True):
            for p, w, v in zip(model.parameters(), shared, own, strict=True):
                p.copy_(SHARE * v + (1 - SHARE) * w)
            total += float(loss_on(rows)) * len(rows) / sum(len(rows) for _, rows in nodes)
    assert abs(loss - total) < 1e-6
    assert loss != trained(tmp_path)[1]
"""

PLAIN = {
    "basis": "",
    "before": "",
    "round": "",
    "change": "",
    "after": "",
    "measured": "ours, _",
    "share": "len(rows) / sum(len(r) for r, _ in nodes)",
}
KINDS = {
    "strategy": PLAIN
    | {
        "code": STRATEGY,
        "option": STRATEGY_OPTION,
        "test": START + END,
        "group": "strategy",
        "symbol": "ALPHA",
        "neutral_name": "alpha_1",
        "neutral": "strategy=$module strategy.alpha=1",
        "chosen": "strategy=$module strategy.alpha={ALPHA}",
        "step": "ALPHA * mean",
    },
    "correction": PLAIN
    | {
        "code": CORRECTION,
        "option": CORRECTION_OPTION,
        "test": START + END,
        "group": "corrections",
        "symbol": "MU",
        "neutral_name": "mu_0",
        "neutral": "corrections=$module client.corrections.$module.mu=0",
        "chosen": "corrections=$module client.corrections.$module.mu={MU}",
        "change": "            pairs = zip(gradients, model.parameters(), strict=True)\n"
        "            gradients = [g + MU * p.detach() for g, p in pairs]\n",
        "step": "mean",
    },
    "strategy-with-correction": PLAIN
    | {
        "code": MOMENTUM,
        "option": MOMENTUM_OPTION,
        "test": START + END,
        "group": "strategy",
        "symbol": "ALPHA",
        "basis": "weighting=uniform",
        "neutral_name": "alpha_1",
        "neutral": "strategy=$module strategy.alpha=1",
        "chosen": "strategy=$module strategy.alpha={ALPHA}",
        "before": "    momentum = [torch.zeros_like(p) for p in model.parameters()]\n",
        "change": "            pairs = zip(gradients, momentum, strict=True)\n"
        "            gradients = [ALPHA * g + (1 - ALPHA) * m for g, m in pairs]\n",
        "share": "1 / len(nodes)",
        "step": "mean",
        "after": "        momentum = [mean / RATE for mean in step]\n",
    },
    "personal": PLAIN
    | {
        "code": PERSONAL,
        "option": PERSONAL_OPTION,
        "test": START + PERSONAL_END,
        "group": "personal",
        "symbol": "SHARE",
        "measured": "ours, loss",
        "neutral_name": "share_0",
        "neutral": "personal=$module client.personal.share=0",
        "chosen": "personal=$module client.personal.share={SHARE}",
        "round": "        ends = []\n",
        "change": "            pairs = zip(model.parameters(), gradients, strict=True)\n"
        "            ends.append([p.detach() - RATE * g for p, g in pairs])\n",
        "step": "mean",
    },
}
TEXTS = ("code", "option", "test")  # the files of a kind


def create(name: str, kind: str, folder: Path) -> list[Path]:
    """Write a method's files into a folder; return them.

    Raises
    ------
    UserError : for an invalid or taken name, and if a file exists already
    """
    if not name.isidentifier() or keyword.iskeyword(name) or name == name.lower():
        raise UserError(f"{name!r} is not a class name: expected a word such as FedMine")
    written = "".join(text[key] for text in KINDS.values() for key in TEXTS)
    taken = re.search(rf"^(from|import) .*\b{name}\b", written, flags=re.M)
    conf = Path(__file__).parents[1] / "conf"
    if taken or (conf / KINDS[kind]["group"] / f"{name.lower()}.yaml").exists():
        raise UserError(f"{name} is taken by this project: choose another name")
    if folder.name in ("baselines", "clients", "conf", "strategies"):
        raise UserError(
            f"--folder {folder}: {folder.name} is a package of this project: choose another name"
        )
    if not folder.name.isidentifier():
        raise UserError(f"--folder {folder}: a package needs a name that Python can import, such as mylab")
    module, text = name.lower(), KINDS[kind]
    words = {"name": name, "module": module, "package": folder.name}
    words |= {key: Template(value).substitute(words) for key, value in text.items() if key not in TEXTS}
    files = {
        folder / f"{module}.py": text["code"],
        folder / "conf" / text["group"] / f"{module}.yaml": text["option"],
        folder / f"test_{module}.py": text["test"],
    }
    if present := [str(file) for file in files if file.exists()]:
        raise UserError(f"{present[0]} exists already: choose another name, or another --folder")
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
        formatter_class=HelpParagraphs,
    )
    parser.add_argument("name", help="of the new class, as FedMine")
    kinds = f"kind of method: {', '.join(KINDS)} (default: strategy)"
    parser.add_argument("--kind", choices=KINDS, default="strategy", metavar="KIND", help=kinds)
    parser.add_argument(
        "--folder", type=Path, default=Path("mylab"), help="where to write it (default: mylab)"
    )
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Write the files of the named method; return the exit status."""
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
