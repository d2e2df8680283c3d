"""Code of the user's own: its hash stands with the run, and a run that goes on with other code says so."""

import json
import sys
from pathlib import Path

import pytest
from runs import launch

from baselines.engine import resuming
from baselines.experiment.source import own_sources

CODE = "from strategies import Constant as Steady\n"


@pytest.fixture
def arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a run's arguments whose step size is of a package of the user's own."""
    (tmp_path / "steady_lab" / "conf" / "step_size").mkdir(parents=True)
    (tmp_path / "steady_lab" / "__init__.py").write_text(CODE)
    (tmp_path / "steady_lab" / "conf" / "step_size" / "steady.yaml").write_text(
        "_target_: steady_lab.Steady\neta: 1.0\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "steady_lab", raising=False)
    folder = f"--config-dir={tmp_path}/steady_lab/conf"
    setting = ["model=softmax", "num_nodes=2", "step_size=steady", "checkpoint_every=1", "resume=true"]
    return [folder, *setting, f"hydra.run.dir={tmp_path}/run"]


@pytest.mark.parametrize("rounds", [1, 2], ids=["finished", "continued"])
def test_a_run_that_goes_on_with_other_code_says_so(
    rounds: int, arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(resuming.logger, "warning", lambda text, *values: said.append(text % values))
    assert launch(*arguments, "rounds=1") == 0
    told = json.loads((tmp_path / "run" / "environment.json").read_text())
    assert told["own_sources"] == own_sources(["steady_lab.Steady", "torch.optim.SGD", "json.JSONDecoder"])
    assert list(told["own_sources"]) == ["steady_lab"]
    assert launch(*arguments, f"rounds={rounds}") == 0
    assert not said
    (tmp_path / "steady_lab" / "__init__.py").write_text(CODE + "# another\n")
    assert launch(*arguments, f"rounds={rounds + 1 if rounds == 2 else rounds}") == 0
    assert f"{tmp_path}/run: steady_lab has changed since; resume=false starts again" in said


def test_what_pip_or_python_brought_is_none_of_the_users() -> None:
    assert own_sources(["strategies.FedAvg", "torch.nn.Linear", "flwr.Any", "math.sin", "json.loads"]) == {}
    assert own_sources(["no_such_package_here.Part"]) == {}
