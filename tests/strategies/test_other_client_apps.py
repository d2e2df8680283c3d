"""Strategies with ClientApps that are not this project's."""

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pytest
from flwr.app import ArrayRecord, Context, RecordDict
from flwr.client import Client, NumPyClient
from flwr.clientapp import ClientApp
from torch.optim import SGD

from baselines.grids.inline import InlineGrid
from clients import Classification, Correction, LocalTraining, Node, RoundStart, client_app
from helpers.federation import Federation, answer, record, sent_model
from helpers.plain_loop import examples, perceptron, seeded
from strategies import (
    AFL,
    IFCA,
    FedAvg,
    FedCM,
    FedDyn,
    FedNova,
    FedProx,
    InverseVariance,
    LocalOnly,
    LocalPrivacy,
    MimeLite,
    Oort,
    PowerOfChoice,
    QFedAvg,
    Scaffnew,
    Scaffold,
    Sketch,
    TooManyFailedRounds,
    TopK,
    Uniform,
)
from strategies.core.strategy import BaseStrategy

START = {"w": np.zeros(2)}


def stock(partition_id: int, content: RecordDict) -> RecordDict:
    """Answer as a client of Flower's does: a model, and on how many examples."""
    content = answer({"w": sent_model(content)["w"] + 1}, 5)
    del content["config"]
    return content


OURS = "needs this project's ClientApp (clients.client_app), or one that does the same"
LACKING: dict[str, tuple[BaseStrategy, str]] = {
    "scaffold": (Scaffold(), "sent no 'control' record: Scaffold"),
    "fednova": (FedNova(), "sent no 'effective-steps': FedNova with aggregation=Normalized"),
    "feddyn": (FedDyn(), "does not keep FedDyn's gradient: FedDyn"),
    "scaffnew": (Scaffnew(), "does not keep Scaffnew's variate: Scaffnew"),
    "qfedavg": (QFedAvg(), "sent no 'start-loss': QFedAvg with aggregation=Fair"),
    "fedcm": (FedCM(), "sent no 'learning-rate': FedCM"),
    "mimelite": (MimeLite(), "sent no 'full-gradient' record: MimeLite"),
    "power of choice": (PowerOfChoice(), "sent no 'loss': PowerOfChoice"),
    "ifca": (IFCA(), "sent no 'chosen-model': IFCA"),
    "oort": (Oort(), "sent no 'squared-loss': Oort"),
    "afl": (AFL(), "sent no 'start-loss': AFL with weighting=Agnostic"),
    "inverse_variance": (
        FedAvg(weighting=InverseVariance()),
        "sent no 'gradient-variance': FedAvg with weighting=InverseVariance",
    ),
    "local_privacy": (
        FedAvg(weighting=Uniform(), privacy=LocalPrivacy(clip=1.0, noise_multiplier=1.0)),
        "does not say that it noised its update: FedAvg with privacy=LocalPrivacy",
    ),
}


@pytest.mark.parametrize("name", LACKING)
def test_a_run_ends_at_once_where_all_nodes_lack_the_same(name: str) -> None:
    strategy, line = LACKING[name]
    grid = Federation(stock, 3)
    with pytest.raises(TooManyFailedRounds) as error:
        strategy.start(grid, record(START), num_rounds=9)
    assert str(error.value) == f"each of the 3 nodes that answered in round 1 {line} {OURS}"
    assert grid.requests == [("train", 0), ("train", 1), ("train", 2)]


def test_so_for_one_model_per_node() -> None:
    grid = Federation(stock, 2)
    with pytest.raises(TooManyFailedRounds) as error:
        LocalOnly(inner=Scaffold()).start(grid, record(START), num_rounds=9)
    assert "the one node that answered in round 1 sent no 'control' record: Scaffold needs" in str(
        error.value
    )
    assert len(grid.trained()) == 2


@dataclass(kw_only=True, eq=False)
class Pulled(FedAvg):
    """Sends its setting by the key of its correction, which returns a record."""

    extra_record = "pull"
    mu: float = 1.0

    def train_config(self) -> Any:
        return {**super().train_config(), "pull-mu": self.mu}


class Pull(Correction):
    config_key = "pull-mu"
    has_record: ClassVar[bool] = True

    def __init__(self, start: RoundStart) -> None:
        self.sent = start.content.array_records["arrays"]

    def on_round_end(self, parameters: Any, metrics: Any) -> Any:
        return {"pull": self.sent} if self.has_record else {}


class Silent(Pull):
    has_record = False


IDLE = "Pulled sends pull-mu=0.0, and a correction does not act where its config_key is 0 or empty: "
UNSENT = "no correction sends it: check that train_config() sends its config_key, that the nodes' "


@pytest.mark.parametrize(
    ("mu", "known", "cause"), [(0.0, (Pull,), IDLE), (1.0, (), UNSENT), (1.0, (Silent,), UNSENT)]
)
def test_with_our_client_app_the_correction_is_named(
    mu: float, known: tuple[type[Correction], ...], cause: str
) -> None:
    model, training = seeded(perceptron), LocalTraining(optimizer=partial(SGD, lr=0.1))
    rows = examples()
    node = Node(model, training, Classification(), rows, rows, known_corrections=known)
    grid = InlineGrid(client_app(lambda *_: node), 2)
    with pytest.raises(TooManyFailedRounds) as error:
        Pulled(mu=mu).start(grid, ArrayRecord(model.state_dict()), num_rounds=9)
    first = "each of the 2 nodes that answered in round 1 sent no 'pull' record: "
    assert str(error.value).startswith(first + cause)
    assert "\n" not in str(error.value)


def test_a_single_node_of_another_kind_is_left_out_and_no_more() -> None:
    def mixed(partition_id: int, content: RecordDict) -> RecordDict:
        reply = stock(partition_id, content)
        if partition_id > 0:
            reply["metrics"]["effective-steps"] = 4.0
        return reply

    result = FedNova().start(Federation(mixed, 3), record(START), num_rounds=2)
    assert [metrics["replies"] for metrics in result.train_metrics_clientapp.values()] == [2, 2]


@pytest.mark.parametrize("count", [1, 3])
def test_a_client_fn_is_answered_with_what_to_write(count: int) -> None:
    class Older(NumPyClient):
        def fit(self, parameters: Any, config: Any) -> Any:
            return parameters, 5, {}

    def client_fn(context: Context) -> Client:
        return Older().to_client()

    strategy = FedAvg(num_nodes=count, max_failed_rounds=1)
    with pytest.raises(
        TooManyFailedRounds, match=r"made of a client_fn.*: give it functions with @app\.train"
    ):
        strategy.start(InlineGrid(ClientApp(client_fn), count), ArrayRecord([np.zeros(2)]), num_rounds=2)


UNHEEDED: dict[str, tuple[Any, str]] = {
    "fedprox": (
        FedProx,
        "FedProx relies on it for the proximal term (proximal-mu in the message's config),",
    ),
    "compression": (lambda: FedAvg(compression=TopK()), "FedAvg relies on it for compression=TopK,"),
    "both": (lambda: FedProx(compression=Sketch()), "config) and compression=Sketch, and does not see"),
}


@pytest.mark.parametrize("name", UNHEEDED)
def test_what_a_client_may_ignore_is_named_once(name: str, caplog: pytest.LogCaptureFixture) -> None:
    make, line = UNHEEDED[name]
    make().start(Federation(stock, 2), record(START), num_rounds=3)
    lines = [one for one in caplog.messages if "run another ClientApp than this project's" in one]
    assert len(lines) == 1
    assert line in lines[0]


def test_nothing_is_said_of_our_own_clients_nor_of_strategies_without_such_a_part(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def ours(partition_id: int, content: RecordDict) -> RecordDict:
        content = stock(partition_id, content)
        content["metrics"]["partition-id"] = partition_id
        return content

    FedProx().start(Federation(ours, 2), record(START), num_rounds=1)
    FedProx(mu=0.0).start(Federation(stock, 2), record(START), num_rounds=1)
    FedAvg().start(Federation(stock, 2), record(START), num_rounds=1)
    assert "another ClientApp" not in caplog.text
