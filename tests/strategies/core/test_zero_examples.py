"""A node that trained on nothing does not count."""

import numpy as np
from flwr.app import RecordDict

from helpers.federation import Federation, answer, model_in, play, record, sent_model
from strategies import FedAvg, Uniform

MODEL = record({"w": np.zeros(2)})


def federation(*examples: float) -> Federation:
    def node(partition_id: int, content: RecordDict) -> RecordDict:
        return answer({"w": sent_model(content)["w"] + 10**partition_id}, examples[partition_id])

    return Federation(node, len(examples))


def test_it_is_left_out_whatever_the_weighting() -> None:
    for weighting, mean in ((Uniform(), (1 + 100) / 2), (FedAvg().weighting, (1 + 3 * 100) / 4)):
        ((new, metrics),) = play(FedAvg(weighting=weighting), federation(1, 0, 3), MODEL)
        assert model_in(new)["w"].tolist() == [mean] * 2
        assert (metrics["replies"], metrics["failed"]) == (2, 1)


def test_of_such_nodes_alone_there_is_no_round(caplog) -> None:  # type: ignore[no-untyped-def]
    ((same, metrics),) = play(FedAvg(), federation(0, 0), MODEL)
    assert same is MODEL
    assert (metrics["replies"], metrics["failed"]) == (0, 2)
    assert "partition 1 left out: trained on no examples" in caplog.text
