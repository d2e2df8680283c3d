"""Frozen parameters travel once, are no part of the update rule, and change no result."""

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import nn

from baselines.engine.metrics import count_bytes
from baselines.grids.inline import InlineGrid
from clients import Frozen
from clients.frozen import STATE_PREFIX
from helpers.federation import assert_same
from helpers.freezing import CLASSES, NAMES, NODES, classifiers, names_in, network, own, play, start
from helpers.server_data import Functions
from strategies import (
    AFL,
    AdaptivePrivacy,
    AndMask,
    CentralPrivacy,
    Erosion,
    FedAdam,
    FedAMS,
    FedAvg,
    FedAvgM,
    FedCM,
    FedDyn,
    FedExP,
    FedGMA,
    FedNova,
    FedProx,
    FedYogi,
    GeometricMask,
    InverseVariance,
    Krum,
    LocalOnly,
    LocalPrivacy,
    LowRank,
    Median,
    MimeLite,
    PseudoGradientStrategy,
    QFedAvg,
    RandomMask,
    Scaffnew,
    Scaffold,
    ScaledSign,
    SelectiveFedAvg,
    SignSGD,
    Sketch,
    TopK,
    TrimmedMean,
    Uniform,
    WeightErosion,
    WeightErosionForAll,
)
from strategies.core.strategy import BaseStrategy
from strategies.shared import protocol
from strategies.shared.arrays import hash_values, to_array_record, values_of, view_values

ASKED: dict[str, Any] = {"query_partitions": True, "num_nodes": NODES}
LOCAL = LocalPrivacy(clip=1.0, noise_multiplier=1.0, noise_seed=3)


def correctness_fn(models: Any) -> torch.Tensor:
    return torch.tensor([[k % 2 == 0, k % 2 == 1] for k in range(len(models))])


METHODS: dict[str, Callable[[], BaseStrategy]] = {
    "fedavg": lambda: FedAvg(**ASKED),
    "fedavg, some nodes": lambda: FedAvg(**ASKED, nodes_per_round=2, seed=5),
    "fedavg, mean of iterates": lambda: FedAvg(**ASKED, average_last=2),
    "fedavgm": lambda: FedAvgM(**ASKED),
    "fedadam": lambda: FedAdam(**ASKED),
    "fedyogi": lambda: FedYogi(**ASKED),
    "fedprox": lambda: FedProx(**ASKED, mu=0.1),
    "fednova": lambda: FedNova(**ASKED),
    "feddyn": lambda: FedDyn(**ASKED),
    "scaffnew": lambda: Scaffnew(**ASKED),
    "fedgma": lambda: FedGMA(**ASKED),
    "and mask": lambda: FedAvg(**ASKED, mask=AndMask()),
    "geometric mask": lambda: FedAvg(**ASKED, mask=GeometricMask()),
    "qfedavg": lambda: QFedAvg(**ASKED),
    "afl": lambda: AFL(**ASKED),
    "fedams": lambda: FedAMS(**ASKED),
    "signsgd": lambda: SignSGD(**ASKED),
    "median": lambda: FedAvg(**ASKED, weighting=Uniform(), aggregation=Median()),
    "krum": lambda: FedAvg(**ASKED, weighting=Uniform(), aggregation=Krum(num_hostile=0)),
    "inverse variance": lambda: FedAvg(**ASKED, weighting=InverseVariance()),
    "top k": lambda: FedAvg(**ASKED, compression=TopK(0.2, error_feedback=True)),
    "sketch": lambda: FedAvg(**ASKED, compression=Sketch(0.5, bits=4)),
    "random mask": lambda: FedAvg(**ASKED, compression=RandomMask(0.5)),
    "low rank": lambda: FedAvg(**ASKED, compression=LowRank(0.3)),
    "scaled sign": lambda: FedAvg(**ASKED, compression=ScaledSign()),
    "local": lambda: LocalOnly(inner=FedAvg(**ASKED)),
    "selective": lambda: SelectiveFedAvg(
        inner=FedAvg(**ASKED), local_rounds=1, server_data=Functions(correctness_fn)
    ),
}
SUMMED: dict[str, Callable[[], BaseStrategy]] = {
    "fedexp": lambda: FedExP(**ASKED),
    "fedcm": lambda: FedCM(**ASKED),
    "mimelite": lambda: MimeLite(**ASKED),
    "scaffold": lambda: Scaffold(**ASKED),
    "scaffold, option 1": lambda: Scaffold(**ASKED, option=1),
    "trimmed mean": lambda: FedAvg(**ASKED, weighting=Uniform(), aggregation=TrimmedMean(0.3)),
    "weight erosion": lambda: WeightErosion(**ASKED),
    "weight erosion for all": lambda: WeightErosionForAll(inner=WeightErosion(**ASKED)),
}


@pytest.mark.parametrize("known", [True, False], ids=["of its own model", "as sent"])
@pytest.mark.parametrize("method", METHODS)
def test_a_methods_models_are_those_without_it(method: str, known: bool) -> None:
    """To the bit, whether a node has the frozen parameters of its own model or keeps what it was sent."""
    plain, freezing = METHODS[method](), METHODS[method]()
    freezing.freeze(NAMES)
    expected = play(plain, classifiers(), start())
    actual = play(freezing, classifiers(own) if known else classifiers(), start())
    for (right, _, _), (model, messages, replies) in zip(expected, actual, strict=True):
        assert_same(right, model)
        assert not any(names_in(reply) & set(NAMES) for reply in replies)
        assert len(messages) == len(replies)
    assert_models_alike(plain, freezing, expected[-1][0], actual[-1][0])
    assert not any(names_in(message) & set(NAMES) for message in actual[-1][1])


def assert_models_alike(
    one: BaseStrategy, other: BaseStrategy, last: ArrayRecord, others: ArrayRecord
) -> None:
    expected, actual = one.models_to_evaluate(last), other.models_to_evaluate(others)
    assert expected.keys() == actual.keys()
    for name, model in expected.items():
        assert_same(model, actual[name])


@pytest.mark.parametrize("method", SUMMED)
def test_what_depends_on_sums_by_torch_is_the_same_to_rounding(method: str) -> None:
    """A float32 norm adds in another order without the zeros of what is frozen, a sum over the nodes where
    a column is not at the same place.
    """
    freezing = SUMMED[method]()
    freezing.freeze(NAMES)
    expected = play(SUMMED[method](), classifiers(), start())[-1][0]
    actual = play(freezing, classifiers(own), start())[-1][0]
    for name in expected:
        np.testing.assert_allclose(
            view_values(actual[name]), view_values(expected[name]), rtol=2e-6, atol=1e-6
        )


def test_after_the_first_round_it_costs_what_is_trained() -> None:
    """Names and headers are a share of the small model's bytes: each array has 128 of them and its name."""
    history = play(FedAvg(**ASKED, frozen_names=NAMES), classifiers(own), start())
    rest = {name: value for name, value in network().state_dict().items() if name not in NAMES}
    trained = ArrayRecord(rest).count_bytes()
    for _, messages, replies in history[1:]:
        assert count_bytes(messages) == [trained] * NODES
        assert all(size <= trained + 300 for size in count_bytes(replies))  # with the metrics
    assert count_bytes(history[0][1]) == [start().count_bytes()] * NODES


def test_without_frozen_parameters_messages_are_as_before() -> None:
    strategy, arrays = FedAvg(**ASKED), start()
    (message, *_) = strategy.configure_train(1, arrays, ConfigRecord(), classifiers())
    assert message.content.array_records[protocol.ARRAYS] is arrays
    assert protocol.FROZEN not in message.content.config_records[protocol.CONFIG]


@pytest.mark.parametrize(
    "privacy",
    [
        CentralPrivacy(clip=1.0, noise_multiplier=1.0, noise_seed=2),
        AdaptivePrivacy(clip=1.0, noise_multiplier=1.0, noise_seed=2, count_noise=2.0),
        LOCAL,
    ],
    ids=["central", "adaptive", "local"],
)
def test_noise_is_added_to_what_is_trained_alone(privacy: Any) -> None:
    strategy = FedAvg(**ASKED, weighting=Uniform(), privacy=privacy, frozen_names=NAMES)
    before = ArrayRecord(network(buffers=False).state_dict())
    after = play(strategy, classifiers(own, buffers=False), before, last=1)[0][0]
    for name in before:
        moved = before[name].data != after[name].data
        assert moved == (name not in NAMES), name


def test_a_node_that_has_lost_them_says_so_and_is_sent_them_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A restarted node whose own model differs: it is left out of one round by name."""
    strategy, grid = FedAvg(**ASKED, frozen_names=NAMES), classifiers(lambda: Frozen.of(network(seed=9)))
    arrays = play(strategy, grid, start(), last=2)[-1][0]
    grid.context(grid.get_node_ids()[1]).state = RecordDict()
    with caplog.at_level(logging.WARNING):
        (model, _, _), (_, messages, replies) = play(strategy, grid, arrays, first=3, last=4)
    assert "partition 1 left out" in caplog.text
    assert "does not have the model's frozen parameters" in caplog.text
    assert [set(NAMES) <= names_in(message) for message in messages] == [False, True, False, False]
    assert not any(reply.has_error() for reply in replies)
    assert_frozen_as_sent(model)


def test_a_restarted_node_with_the_same_model_needs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    strategy, grid = FedAvg(**ASKED, frozen_names=NAMES), classifiers(own)
    arrays = play(strategy, grid, start(), last=2)[-1][0]
    grid.context(grid.get_node_ids()[1]).state = RecordDict()
    ((_, messages, replies),) = play(strategy, grid, arrays, first=3)
    assert not any(set(NAMES) & names_in(message) for message in messages)
    assert not any(reply.has_error() for reply in replies)
    assert not caplog.records


def test_a_node_keeps_what_its_own_model_does_not_have() -> None:
    grid = classifiers(lambda: Frozen.of(network(seed=9)))
    play(FedAvg(**ASKED, frozen_names=NAMES), grid, start(), last=2)
    (kept,) = grid.context(grid.get_node_ids()[0]).state.items()
    assert kept[0] == STATE_PREFIX + hash_values(kept[1])  # type: ignore[arg-type]
    grid = classifiers(own)
    play(FedAvg(**ASKED, frozen_names=NAMES), grid, start(), last=2)
    assert not grid.context(grid.get_node_ids()[0]).state


def test_another_process_under_a_partition_is_sent_them() -> None:
    strategy, grid = FedAvg(**ASKED, frozen_names=NAMES), classifiers(own)
    arrays = play(strategy, grid, start(), last=2)[-1][0]
    node = grid.get_node_ids()[2]
    strategy.registry.frozen_at[2] = (node + 1, strategy.registry.frozen_at[2][1])
    ((_, messages, _),) = play(strategy, grid, arrays, first=3)
    assert [set(NAMES) <= names_in(message) for message in messages] == [False, False, True, False]


def test_a_resumed_strategy_goes_on_without_them() -> None:
    grid = classifiers(lambda: Frozen.of(network(seed=9)))
    strategy = FedAvg(**ASKED, frozen_names=NAMES)
    arrays = play(strategy, grid, start(), last=2)[-1][0]
    expected = play(strategy, grid, arrays, first=3, last=4)
    resumed = FedAvg(**ASKED, frozen_names=NAMES)
    again = classifiers(lambda: Frozen.of(network(seed=9)))
    other = FedAvg(**ASKED, frozen_names=NAMES)
    play(other, again, start(), last=2)
    resumed.load_state_dict(other.state_dict())
    actual = play(resumed, again, arrays, first=3, last=4)
    assert_same(expected[-1][0], actual[-1][0])
    assert count_bytes(actual[0][1]) == count_bytes(expected[0][1])


def test_a_state_of_before_goes_on_as_it_began() -> None:
    """Moments and iterates of a strategy that did not know of frozen parameters have their columns."""
    settings: dict[str, Any] = {**ASKED, "average_last": 2}
    plain, grid = FedAdam(**settings), classifiers()
    arrays = play(plain, grid, start(), last=2)[-1][0]
    resumed = FedAdam(**settings, frozen_names=NAMES)
    resumed.load_state_dict(plain.state_dict())
    actual = play(resumed, classifiers(own), arrays, first=3)[-1][0]
    expected = play(plain, grid, arrays, first=3)[-1][0]
    assert_same(expected, actual)
    assert_models_alike(plain, resumed, expected, actual)


def test_nodes_evaluate_without_being_sent_them() -> None:
    strategy, grid = FedAvg(**ASKED, frozen_names=NAMES), classifiers(own)
    plain, others = FedAvg(**ASKED), classifiers()
    arrays = play(strategy, grid, start(), last=1)[0][0]
    play(plain, others, start(), last=1)
    messages = list(strategy.configure_evaluate(1, arrays, ConfigRecord(), grid))
    assert not any(set(NAMES) & names_in(message) for message in messages)
    actual = strategy.aggregate_evaluate(1, grid.send_and_receive(messages))
    messages = list(plain.configure_evaluate(1, arrays, ConfigRecord(), others))
    assert actual == plain.aggregate_evaluate(1, others.send_and_receive(messages))


def test_a_node_that_is_first_asked_to_evaluate_has_them_then() -> None:
    strategy, grid = FedAvg(**ASKED, frozen_names=NAMES), classifiers()
    strategy._start_from(start())
    messages = list(strategy.configure_evaluate(1, start(), ConfigRecord(), grid))
    assert all(set(NAMES) <= names_in(message) for message in messages)
    assert strategy.aggregate_evaluate(1, grid.send_and_receive(messages))
    ((_, messages, replies),) = play(strategy, grid, start(), last=1)
    assert not any(set(NAMES) & names_in(message) for message in messages)
    assert not any(reply.has_error() for reply in replies)


def test_private_layers_beside_frozen_ones() -> None:
    expected = play(FedAvg(**ASKED), classifiers(private=("last",)), start())[-1][0]
    actual = play(FedAvg(**ASKED, frozen_names=NAMES), classifiers(own, ("last",)), start())[-1][0]
    assert_same(expected, actual)
    expected = play(FedAvg(**ASKED), classifiers(private=("2.*",)), start())[-1][0]
    actual = play(FedAvg(**ASKED, frozen_names=NAMES), classifiers(own, ("2.*",)), start())[-1][0]
    assert_same(expected, actual)


def test_a_node_that_changes_one_is_refused_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    def change(model: nn.Module) -> None:
        with torch.no_grad():
            model[2].weight[0, 0] += 1  # type: ignore[index]

    strategy = FedAvg(**ASKED, frozen_names=NAMES)
    ((model, _, _),) = play(strategy, classifiers(own, change=change), start(), last=1)
    (line,) = (one.getMessage() for one in caplog.records if one.levelno == logging.WARNING)
    assert "partition 0 left out: ValueError: the frozen parameter '2.weight' has changed" in line
    assert "requires_grad=True" in line
    assert_frozen_as_sent(model)


def stock(add: float = 0.0) -> InlineGrid:
    """Return nodes of another ClientApp, which send all arrays; ``add`` changes a frozen one."""
    app = ClientApp()

    @app.train()
    def train(message: Message, _: Any) -> Message:
        model = dict(message.content.array_records["arrays"].to_torch_state_dict())
        model["0.weight"] = model["0.weight"] + 1
        model["2.bias"] = model["2.bias"] + add
        metrics = MetricRecord({protocol.NUM_EXAMPLES: 3})
        return Message(RecordDict({"arrays": ArrayRecord(model), "metrics": metrics}), reply_to=message)

    return InlineGrid(app, NODES)


def test_nodes_of_another_app_are_sent_and_send_everything() -> None:
    for model, messages, replies in play(FedAvg(frozen_names=NAMES), stock(), start()):
        assert all(names_in(message) == set(start()) for message in [*messages, *replies])
        assert_frozen_as_sent(model)


def test_a_node_of_another_app_that_changes_one_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    play(FedAvg(frozen_names=NAMES), stock(add=1.0), start(), last=1)
    assert "changed '2.bias', which is frozen" in caplog.text


def assert_frozen_as_sent(model: ArrayRecord) -> None:
    for name in NAMES:
        assert model[name].data == start()[name].data


@pytest.mark.parametrize(
    ("names", "message"),
    [(("2.wieght",), "the model has no '2.wieght'"), ("2.bias", "expected a tuple"), (None, "to train")],
)
def test_names_that_cannot_be_meant_are_refused(names: Any, message: str) -> None:
    names = tuple(start()) if names is None else names
    with pytest.raises(ValueError, match=message):
        FedAvg(frozen_names=names).check(start())


def test_the_hash_is_of_values() -> None:
    model = network()
    record = to_array_record({name: model.state_dict()[name] for name in NAMES})
    packed = ArrayRecord({name: model.state_dict()[name] for name in reversed(NAMES)})
    known = Frozen.of(model)
    assert known is not None
    assert hash_values(record) == hash_values(packed) == known.hash
    turned = to_array_record({**{n: values_of(a) for n, a in record.items()}, NAMES[0]: model[2].weight.T})  # type: ignore[index,union-attr,dict-item]
    assert hash_values(turned) != known.hash
    with torch.no_grad():
        model[2].bias[1] += 1e-6  # type: ignore[index,operator]
    assert hash_values(record) != known.hash  # of the tensors as they are now


def test_the_hash_is_taken_once_for_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    monkeypatch.setattr("strategies.parts.layout.hash_values", lambda a: taken.append(a) or hash_values(a))
    play(FedAvg(**ASKED, frozen_names=NAMES), classifiers(own), start(), last=5)
    assert len(taken) == 1


def test_a_model_without_any_has_none() -> None:
    assert Frozen.of(nn.Linear(2, CLASSES)) is None


def test_parts_see_what_is_trained_alone() -> None:
    class Seeing(FedAvg):
        def take_step(self, server_round: int, updates: Any) -> Any:
            assert not {layer.name for layer in updates.layout.layers} & set(NAMES)
            shapes.append(tuple(updates.deltas.shape))
            return super().take_step(server_round, updates)

    shapes: list[tuple[int, ...]] = []
    play(Seeing(**ASKED, frozen_names=NAMES), classifiers(own), start(), last=1)
    trained = sum(p.numel() for p in network().parameters() if p.requires_grad)
    assert shapes == [(NODES, trained)]


def test_erosion_by_layer_knows_no_frozen_layer() -> None:
    weighting = Erosion(requester=0, by_layer=True)
    strategy: PseudoGradientStrategy = WeightErosion(**ASKED, weighting=weighting, frozen_names=NAMES)
    actual = play(strategy, classifiers(own), start())[-1][0]
    assert_frozen_as_sent(actual)
