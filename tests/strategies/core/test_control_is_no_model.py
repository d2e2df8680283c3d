"""A model without buffers looks like its control variate; a reply without a model has none."""

import numpy as np
from flwr.app import RecordDict

from helpers.federation import Federation, answer, model_in, play, record, sent_model
from strategies import Scaffold

MODEL = record({"w": np.zeros(3, np.float32)})


def test_a_control_variate_is_not_taken_for_the_model() -> None:
    def node(partition_id: int, content: RecordDict) -> RecordDict:
        reply = answer({"w": sent_model(content)["w"] + 1})
        reply["control"] = record({"w": np.full(3, 9, np.float32)})
        if partition_id == 1:
            del reply["arrays"]
        return reply

    ((new, metrics),) = play(Scaffold(), Federation(node, 3), MODEL)
    assert (metrics["replies"], metrics["failed"]) == (2, 1)
    np.testing.assert_array_equal(model_in(new)["w"], np.ones(3, np.float32))
