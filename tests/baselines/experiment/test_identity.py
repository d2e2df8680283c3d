"""When two runs are the same run."""

import pytest
from omegaconf import OmegaConf

from baselines.errors import UserError
from baselines.experiment import config
from baselines.experiment.identity import identity


def test_what_does_not_decide_the_numbers_is_no_part_of_the_identity() -> None:
    one = identity(config.load("seed=3"))
    assert one == identity(config.load("seed=3 resume=true checkpoint_every=5 debug=true data_root=/else"))
    assert one == identity(config.load("seed=3 client=sgd rounds=30"))  # the defaults, spelled out
    others = {identity(config.load(o)) for o in ("seed=4", "seed=3 rounds=31", "seed=3 threads=2")}
    assert len(others | {one}) == 4


def test_an_identity_needs_all_values() -> None:
    with pytest.raises(UserError):
        identity(OmegaConf.create({"data_root": "", "a": "${missing}"}))
