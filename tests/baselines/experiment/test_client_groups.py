"""The nodes' optimiser and their local training are two groups; the older names go on as they were."""

from pathlib import Path

import pytest

from baselines.experiment.config import compose_unchecked
from baselines.experiment.experiment import Experiment
from baselines.experiment.identity import config_hash
from baselines.experiment.messages import is_older_name
from baselines.experiment.overrides import CONF

OLDER = ("sgd", "adam", "adamp", "rmsgd")


def hash_of(overrides: str) -> str:
    return config_hash(compose_unchecked(overrides).cfg)


@pytest.mark.parametrize("beside", ["", "experiment=feder/table4_2", "client.batch_size=7 personal=ditto"])
@pytest.mark.parametrize("name", OLDER)
def test_an_older_name_is_the_same_run(name: str, beside: str) -> None:
    assert hash_of(f"client={name} {beside}") == hash_of(f"client_optimizer={name} {beside}")
    assert is_older_name(CONF / "client" / f"{name}.yaml")


@pytest.mark.parametrize(
    ("overrides", "known"),
    [  # as they were when an optimiser was an option of client
        ("", "0c96a7ff9b10ee18"),
        ("client_optimizer=adam", "cb7dd4501dada58d"),
        ("client_optimizer=adamp", "565a6b5bb68b6964"),
        ("client_optimizer=rmsgd", "fbc8634f3dfbfcb0"),
        ("experiment=feder/table4_2 client_optimizer=rmsgd", "f3d5c96e691a438d"),
    ],
)
def test_runs_are_those_that_they_were(overrides: str, known: str) -> None:
    assert hash_of(overrides) == known


def test_any_optimizer_goes_with_any_local_training() -> None:
    cfg = compose_unchecked("client=full_batch client_optimizer=adam").cfg
    assert cfg.client.optimizer._target_ == "torch.optim.Adam"
    assert (cfg.client.local_steps, cfg.client.batch_size) == (20, None)
    assert "momentum" not in cfg.client.optimizer
    assert Experiment("client_optimizer=rmsgd").training.keep_optimizer
    assert Experiment("client=adam client_optimizer=adamp").choices["client_optimizer"] == "adamp"


def test_an_own_file_on_the_template_states_its_optimizer_alone(tmp_path: Path) -> None:
    (tmp_path / "client").mkdir()
    own = "defaults: [base, _self_]\noptimizer: {_target_: torch.optim.Adagrad, _partial_: true, lr: 0.3}\n"
    (tmp_path / "client" / "mine.yaml").write_text(own)
    experiment = Experiment(f"hydra.searchpath=[file://{tmp_path}] client=mine")
    assert set(experiment.cfg.client.optimizer) == {"_target_", "_partial_", "lr"}
    assert experiment.training.lr == 0.3
    assert not experiment.training.keep_optimizer
