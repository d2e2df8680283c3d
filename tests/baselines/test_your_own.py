"""docs/your-own.md: its blocks are the files of examples/mylab, and its commands do what it says."""

import re
import shlex
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from baselines import results
from baselines.api import run
from baselines.experiment.overrides import ROOT
from helpers.runs import curve, metrics_in, run_command

PAGE = (ROOT / "docs" / "your-own.md").read_text(encoding="utf-8")
RESULTS = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, flags=re.M | re.S)
FILES = [(text.splitlines()[0].removeprefix("# "), text) for kind, text in BLOCKS if kind != "console"]
COMMANDS = [
    line.removeprefix("$ ")
    for kind, text in BLOCKS
    if kind == "console"
    for line in text.replace("\\\n", " ").splitlines()
    if line.startswith("$ python")
]
MYLAB = ROOT / "examples" / "mylab"


@pytest.mark.parametrize(("name", "text"), FILES, ids=[name for name, _ in FILES])
def test_a_block_is_a_file(name: str, text: str) -> None:
    assert text.split("\n", 1)[1] == (ROOT / "examples" / name).read_text(encoding="utf-8")


def test_every_file_is_shown_or_linked() -> None:
    files = {path.relative_to(MYLAB.parent).as_posix() for path in MYLAB.rglob("*") if path.is_file()}
    aside = {"mylab/__init__.py", "mylab/README.md", "mylab/wine.csv"}
    linked = re.findall(r"\(\.\./examples/mylab/(\w+)\.py\)", PAGE)
    options = [
        path for path in MYLAB.rglob("*.yaml") for name in linked if f"mylab.{name}." in path.read_text()
    ]
    theirs = {path.relative_to(MYLAB.parent).as_posix() for path in options}
    theirs |= {f"mylab/{name}.py" for name in linked}
    assert {name for name in files if "__pycache__" not in name} - aside == theirs | {
        name for name, _ in FILES
    }


def done(command: str, folder: Path) -> str:
    """Run a command of the page in a folder of its own; return what it prints."""
    python, *words = shlex.split(command.replace("examples/", f"{ROOT}/examples/"))
    assert python == "python"
    ended = run_command(words, folder, [ROOT, ROOT / "examples"])
    assert ended.returncode == 0, command + ended.stdout + ended.stderr
    return ended.stdout


@pytest.mark.slow
def test_the_commands_do_what_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    outputs = [done(command, tmp_path) for command in COMMANDS]
    assert len(outputs) == 14
    assert sum("accuracy: last" in text for text in outputs) >= 4
    assert "Network on inputs of shape (13,)" in outputs[1]
    assert "fedwarm - FedAvg" in outputs[3]
    assert r"\begin{table}" in (tmp_path / "accuracy.tex").read_text()
    assert (tmp_path / "accuracy.pdf").read_bytes().startswith(b"%PDF")
    assert "<h2>Differences</h2>" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert len(list((tmp_path / "multirun" / "mine").glob("*/metrics.csv"))) == 6
    (block,) = re.findall(r"^```python\n(.*?)^```$", RESULTS, flags=re.M | re.S)
    monkeypatch.chdir(tmp_path)
    exec(block, {})  # what docs/results.md shows, of the same sweep
    assert "fedwarm" in capsys.readouterr().out


@pytest.mark.slow
def test_a_folder_of_images(tmp_path: Path) -> None:
    """The page's folder is a user's own; here one of small pictures, the lighter ones in one class."""
    draws = np.random.default_rng(0)
    for label, light in (("dark", 60), ("light", 180)):
        (tmp_path / "images" / label).mkdir(parents=True)
        for k in range(20):
            pixels = draws.integers(light - 40, light + 40, (8 + k, 10, 3)).astype(np.uint8)
            Image.fromarray(pixels).save(tmp_path / "images" / label / f"{k}.png")
    own = "--config-dir examples/mylab/conf dataset=pictures dataset.load.path=images dataset.load.size=8"
    setting = "model=network num_nodes=2 rounds=3 client.optimizer.lr=0.1 hydra.run.dir=run"
    done(f"python -m baselines.run {own} {setting}", tmp_path)
    assert curve(metrics_in(tmp_path / "run"), "test", "accuracy")[-1] > 0.9


@pytest.mark.slow
def test_the_fedcm_of_the_page_is_the_projects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(MYLAB.parent)
    setting = (
        "dataset=digits model=softmax num_nodes=3 partitioner=dirichlet rounds=3 save=last "
        f"client.local_steps=4 client.local_epochs=null hydra.searchpath=[file://{MYLAB}/conf] strategy="
    )
    frames = [run(f"{setting}{name}", folder=tmp_path) for name in ("fedavg", "fedcm", "fedinertia")]
    plain, theirs, ours = (results.model(frame.run.iloc[0]) for frame in frames)
    for p, q, r in zip(theirs.parameters(), ours.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=0, atol=1e-6)
        assert not torch.allclose(p, r, rtol=0, atol=1e-3)


def test_lion_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """D = (4, -2), then (-1, -2), both decays 1/2: m = (2, -1); of c = (m + D) / 2 the sign is the direction."""
    monkeypatch.syspath_prepend(MYLAB.parent)
    lion = import_module("mylab.lion").Lion(beta1=0.5, beta2=0.5)
    first, state = lion(torch.tensor([4.0, -2.0]), {})
    second, state = lion(torch.tensor([-1.0, -2.0]), state)
    assert (first.tolist(), second.tolist(), state["m"].tolist()) == ([1, -1], [1, -1], [0.5, -1.5])
