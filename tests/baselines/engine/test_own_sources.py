"""Code of the user's own: its hash stands with the run, and a run that goes on with other code says so."""

import json
from pathlib import Path

import pytest

from baselines.experiment.identity import hash_own_sources
from baselines.experiment.messages import logger
from helpers.runs import launch, own_options

CODE = "from strategies import Constant as Steady\n"


@pytest.fixture
def arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a run's arguments whose step size is of a module of the user's own."""
    yaml = "steady: {_target_: steady_lab.Steady, eta: 1.0}"
    own = own_options(tmp_path, monkeypatch, "steady_lab", CODE, step_size=yaml)
    setting = ["model=softmax", "num_nodes=2", "step_size=steady", "checkpoint_every=1", "resume=true"]
    return [own, *setting, f"hydra.run.dir={tmp_path}/run"]


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [1, 2], ids=["finished", "continued"])
def test_a_run_that_goes_on_with_other_code_says_so(
    rounds: int, arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    monkeypatch.setattr(logger, "warning", lines.append)
    assert launch(*arguments, "rounds=1") == 0
    environment = json.loads((tmp_path / "run" / "environment.json").read_text())
    assert environment["own_sources"] == hash_own_sources(
        ["steady_lab.Steady", "torch.optim.SGD", "json.JSONDecoder"]
    )
    assert list(environment["own_sources"]) == ["steady_lab"]
    assert launch(*arguments, f"rounds={rounds}") == 0
    assert not lines
    (tmp_path / "steady_lab.py").write_text(CODE + "# another\n")
    assert launch(*arguments, f"rounds={rounds + 1 if rounds == 2 else rounds}") == 0
    assert f"{tmp_path}/run: steady_lab has changed since; resume=false starts again" in lines


def test_what_pip_or_python_brought_is_none_of_the_users() -> None:
    assert (
        hash_own_sources(["strategies.FedAvg", "torch.nn.Linear", "flwr.Any", "math.sin", "json.loads"])
        == {}
    )
    assert hash_own_sources(["no_such_package_here.Part"]) == {}


def test_a_package_may_lie_in_several_folders_or_where_pip_was_told_to_put_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        (tmp_path / name / "scattered_lab").mkdir(parents=True)  # without __init__.py
        (tmp_path / name / "scattered_lab" / f"{name}.py").write_text(f"{name} = 1\n")
        monkeypatch.syspath_prepend(tmp_path / name)
    before = hash_own_sources(["scattered_lab.one.Part"])
    (tmp_path / "two" / "scattered_lab" / "two.py").write_text("two = 2\n")
    assert list(before) == ["scattered_lab"]
    assert before != hash_own_sources(["scattered_lab.one.Part"])
    for name in ("one", "two"):
        (tmp_path / name / "scattered_lab-1.0.dist-info").mkdir()
    assert hash_own_sources(["scattered_lab.one.Part"]) == {}
