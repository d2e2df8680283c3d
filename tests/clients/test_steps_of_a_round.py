"""A strategy sets the number of local steps by a key of its messages, in place of the clients' own."""

from dataclasses import dataclass

import pytest
from flwr.app import ArrayRecord, ConfigRecord, RecordDict

from helpers.federation import assert_same, play
from helpers.quadratics import STEPS, quadratics, start
from strategies import FedAvg, TooManyFailedRounds


@dataclass(kw_only=True, eq=False)
class Shorter(FedAvg):
    """FedAvg whose nodes take ``steps`` steps fewer in each round."""

    steps: int = 3

    def make_content(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord) -> RecordDict:
        steps = STEPS - self.steps * (server_round - 1)
        return super().make_content(server_round, arrays, ConfigRecord({**config, "local-steps": steps}))


def test_the_messages_steps_are_taken() -> None:
    models = play(Shorter(), quadratics(), start(), (1, 2, 3))
    assert [metrics["local-steps"] for _, metrics in models] == [STEPS, STEPS - 3, STEPS - 6]
    assert_same(models[0][0], play(FedAvg(), quadratics(), start())[-1][0])
    assert models[2][0]["w"].numpy() != pytest.approx(
        play(FedAvg(), quadratics(), start(), (1, 2, 3))[-1][0]["w"].numpy()
    )


def test_a_number_that_is_none_is_refused() -> None:
    with pytest.raises(TooManyFailedRounds, match=r"client\.local_steps=0"):
        play(Shorter(steps=STEPS, max_failed_rounds=1), quadratics(), start(), (1, 2))
