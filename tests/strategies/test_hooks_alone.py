"""Flower's hooks called one by one, as unit tests call them: with replies to messages of nobody's."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from flwr.app import Message, RecordDict
from flwr.serverapp import strategy as flower

from helpers.federation import Model, answer, model_in, record
from strategies import (
    IFCA,
    CentralPrivacy,
    Constant,
    FedAdam,
    FedAvg,
    FedDyn,
    FedExP,
    FedGMA,
    FedProx,
    LocalOnly,
    Scaffold,
    TopK,
    Uniform,
)
from strategies.shared.flower_private import become_server

MODELS: Sequence[Model] = [
    {"w": np.array([1.0, 2.0]), "bn.running_mean": np.array([3.0])},
    {"w": np.array([4.0, 8.0]), "bn.running_mean": np.array([9.0])},
]


def replies() -> list[Message]:
    """Return what two nodes with 1 and 2 examples say."""
    become_server()
    messages = []
    for k, model in enumerate(MODELS):
        request = Message(RecordDict(), 10 + k, "train")
        messages.append(Message(answer(model, 1 + k, loss=float(k)), reply_to=request))
    return messages


@pytest.mark.parametrize(
    "make", [FedAvg, FedProx, lambda: FedAvg(weighting=Uniform())], ids=["fedavg", "fedprox", "uniform"]
)
def test_a_mean_needs_no_more_than_the_replies(make: Any) -> None:
    strategy = make()
    for server_round in (1, 2):  # nothing is left over from the round before
        arrays, metrics = strategy.aggregate_train(server_round, replies())
        share = 1 / 2 if isinstance(strategy.weighting, Uniform) else 2 / 3
        assert arrays is not None
        np.testing.assert_allclose(model_in(arrays)["w"], [1 + 3 * share, 2 + 6 * share], rtol=1e-12)
        np.testing.assert_allclose(model_in(arrays)["bn.running_mean"], [3 + 6 * share], rtol=1e-12)
        assert (metrics["replies"], metrics["loss"]) == (2, pytest.approx(2 / 3))


def test_it_is_flowers_mean() -> None:
    expected, _ = flower.FedAvg().aggregate_train(1, replies())
    actual, _ = FedAvg().aggregate_train(1, replies())
    assert expected is not None
    assert actual is not None
    np.testing.assert_allclose(model_in(actual)["w"], model_in(expected)["w"], rtol=1e-12)


def test_no_replies_give_no_model() -> None:
    assert FedAvg().aggregate_train(1, []) == (None, {})


def test_an_evaluation_needs_no_more_either() -> None:
    metrics = FedAvg().aggregate_evaluate(1, replies())
    assert metrics is not None
    assert dict(metrics) == {"loss": pytest.approx(2 / 3)}
    assert FedExP().aggregate_evaluate(1, replies()) is not None


NEEDED: dict[str, tuple[Any, str]] = {
    "fedexp": (
        FedExP,
        "FedExP.aggregate_train needs the model that the nodes were sent, for step_size=Extrapolated",
    ),
    "fedadam": (FedAdam, "for server_optimizer=Adam"),
    "fedgma": (FedGMA, "for mask=AgreementMask"),
    "half a step": (lambda: FedAvg(step_size=Constant(0.5)), "for step_size=Constant(eta=0.5)"),
    "averaged": (lambda: FedAvg(average_last=2), "for average_last=2"),
    "compressed": (lambda: FedAvg(compression=TopK()), "for compression=TopK"),
    "private": (
        lambda: FedAvg(weighting=Uniform(), privacy=CentralPrivacy()),
        "for privacy=CentralPrivacy",
    ),
    "scaffold": (Scaffold, "for the rule"),
    "feddyn": (FedDyn, "for the rule"),
    "ifca": (IFCA, "for the rule"),
    "groups": (lambda: LocalOnly(inner=FedAvg()), "LocalOnly.aggregate_train needs its groups"),
}


@pytest.mark.parametrize("name", NEEDED)
def test_what_depends_on_the_model_that_was_sent_says_so(name: str) -> None:
    make, line = NEEDED[name]
    with pytest.raises(ValueError) as error:
        make().aggregate_train(1, replies())
    assert line in str(error.value)
    assert str(error.value).endswith(": call configure_train before it")


def test_once_nodes_were_asked_only_their_answers_count() -> None:
    from helpers.federation import Federation, play

    strategy = FedAvg()
    play(strategy, Federation(lambda k, content: answer(MODELS[k]), 2), record(MODELS[0]))
    _, metrics = strategy.aggregate_train(1, replies())
    assert metrics["replies"] == 0
