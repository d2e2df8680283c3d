"""A setting that there is none of: a name is suggested only if the chosen configuration has it."""

import pytest

from baselines.errors import UserError
from baselines.experiment import config
from baselines.experiment.experiment import Experiment

HELP = "python -m baselines.run --help shows all"


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("overrides", "hint"),
    [
        ("strategy=fedexp step_size.eta=2", HELP),  # other step sizes have it
        ("strategy=fedexp step_size.epsilom=2", "did you mean step_size.epsilon?"),
        ("step_size.epsilon=2", HELP),
        ("step_size.etta=2", "did you mean step_size.eta?"),
        ("cilent.optimizer.lr=2", "did you mean client.optimizer.lr?"),
        ("hydra.run.dirr=x", "did you mean hydra.run.dir?"),
        ("strategy.mu=0.1", HELP),
        ("num_rounds=1", "did you mean rounds?"),  # the words of other frameworks
        ("rnds=3", "did you mean rounds?"),
        ("num_clients=3", "did you mean num_nodes?"),
        ("clients_per_round=3", "did you mean nodes_per_round?"),
        ("epochs=3", "did you mean client.local_epochs?"),
        ("client.learning_rate=3", "did you mean client.optimizer.lr?"),
        ("optimizer=adam", "did you mean client_optimizer=adam or server_optimizer=adam?"),
        ("algorithm=fedprox", "did you mean strategy=fedprox?"),
        ("foo=none", HELP),  # too many groups have it
    ],
)
def test_the_nearest_name_of_the_chosen_configuration(overrides: str, hint: str) -> None:
    with pytest.raises(UserError) as error:
        config.load(overrides)
    setting = overrides.split()[-1].partition("=")[0]
    assert str(error.value) == f"there is no setting {setting}: {hint}"


@pytest.mark.parametrize(
    ("override", "hint"),
    [
        ("strategy=fedxp", "did you mean fedexp? expected one of afl, "),
        ("mask=agrement", "did you mean agreement? expected one of agreement, "),
        ("strategy=zzz", "strategy/zzz does not exist: expected one of "),
        ("client.optimizer=adam", "did you mean client_optimizer=adam?"),
    ],
)
def test_the_nearest_option(override: str, hint: str) -> None:
    experiment = Experiment(override)
    with pytest.raises(UserError) as error:
        _ = experiment.prototype, experiment.training
    assert hint in str(error.value)
