"""A setting that there is none of: a name is suggested only if the chosen configuration has it."""

import pytest

from baselines.errors import UserError
from baselines.experiment import config

HELP = "python -m baselines.run --help shows all"


@pytest.mark.parametrize(
    ("overrides", "hint"),
    [
        ("strategy=fedexp step_size.eta=2", HELP),  # other step sizes have it
        ("strategy=fedexp step_size.epsilom=2", "did you mean step_size.epsilon?"),
        ("step_size.epsilon=2", HELP),
        ("step_size.etta=2", "did you mean step_size.eta?"),
        ("cilent.optimizer.lr=2", "did you mean client.optimizer.lr?"),
        ("hydra.run.dirr=x", "did you mean hydra.run.dir?"),
    ],
)
def test_the_nearest_name_of_the_chosen_configuration(overrides: str, hint: str) -> None:
    with pytest.raises(UserError) as error:
        config.load(overrides)
    setting = overrides.split()[-1].partition("=")[0]
    assert str(error.value) == f"there is no setting {setting}: {hint}"
