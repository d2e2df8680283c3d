"""Nodes that compress: two rounds by hand, what a reply carries, and who is left out."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message
from torch import nn
from torch.optim import SGD

from baselines.grids.inline import InlineGrid
from clients import Classification, Examples, LeastSquares, LocalTraining, Node, client_app
from strategies import (
    Compression,
    FedAvg,
    Grouped,
    LocalPrivacy,
    LowRank,
    NoCompression,
    PseudoGradientStrategy,
    RandomMask,
    Scaffold,
    ScaledSign,
    Sketch,
    TopK,
    Uniform,
)
from strategies.round.decoding import decoded
from strategies.shared.arrays import view
from strategies.shared.low_rank import subspace

TARGET = torch.tensor([[4.0], [-2.0]])


def quadratic(rate: float = 0.5, target: torch.Tensor = TARGET) -> InlineGrid:
    """Return a node that learns w = target by a step of this rate: its gradient is w - target."""
    size = len(target)
    data = Examples(torch.eye(size), target, torch.arange(size))
    training = LocalTraining(optimizer=partial(SGD, lr=rate), batch_size=None)
    node = Node(nn.Linear(size, 1, bias=False), training, LeastSquares(1), data, data)
    return InlineGrid(client_app(lambda *_: node), 1)


def zeros(size: int = 2) -> ArrayRecord:
    return ArrayRecord({"weight": torch.zeros(1, size)})


def play(
    strategy: PseudoGradientStrategy | Grouped, grid: InlineGrid, arrays: ArrayRecord, rounds: int
) -> list[tuple[ArrayRecord, list[Message]]]:
    """Return the model and the nodes' replies after each round."""
    history = []
    for server_round in range(1, rounds + 1):
        asked = strategy.configure_train(server_round, arrays, ConfigRecord(), grid)
        replies = list(grid.send_and_receive(asked))
        new, _ = strategy.aggregate_train(server_round, replies)
        arrays = new or arrays
        history.append((arrays, replies))
    return history


def weights(arrays: ArrayRecord) -> list[float]:
    return np.concatenate([view(array).ravel() for array in arrays.values()]).tolist()


def test_two_rounds_with_error_feedback_by_hand() -> None:
    """From 0, Delta = -0.5 (4, -2) = (-2, 1): -2 is sent, 1 is kept.

    From (2, 0), Delta = 0.5 (2 - 4, 0 + 2) = (-1, 1), with what was kept (-1, 2): 2 is sent, -1 is kept.
    """
    grid = quadratic()
    (first, _), (second, _) = play(FedAvg(compression=TopK(share=0.5)), grid, zeros(), 2)
    assert weights(first) == [2, 0]
    assert weights(second) == [2, -2]
    (node,) = grid.get_node_ids()
    assert weights(grid.context(node).state.array_records["left-out"]) == [-1, 0]


def test_two_rounds_without_it_by_hand() -> None:
    """The second Delta is (-1, 1), of which the first is sent, as both are as large; nothing is kept."""
    grid = quadratic()
    history = play(FedAvg(compression=TopK(share=0.5, error_feedback=False)), grid, zeros(), 2)
    assert [weights(model) for model, _ in history] == [[2, 0], [3, 0]]
    (node,) = grid.get_node_ids()
    assert not grid.context(node).state.array_records


def test_signs_with_error_feedback_by_hand() -> None:
    """(-2, 1) is sent as 1.5 (-1, 1), and (-0.5, -0.5) is kept; from (1.5, -1.5) Delta is (-1.25, 0.25)."""
    history = play(FedAvg(compression=ScaledSign()), quadratic(), zeros(), 2)
    assert weights(history[0][0]) == [1.5, -1.5]
    assert weights(history[1][0]) == [2.5, -0.5]  # (-1.75, -0.25) is 1 (-1, -1)


def test_a_masked_node_trains_what_it_sends() -> None:
    """Two steps of the rate 0.5 take what is trained to three quarters of its target, and nothing else."""
    target = torch.arange(1.0, 11)[:, None]
    data = Examples(torch.eye(10), target, torch.arange(10))
    training = LocalTraining(
        optimizer=partial(SGD, lr=0.5), local_epochs=None, local_steps=2, batch_size=None
    )
    model = nn.Linear(10, 1, bias=False)
    node = Node(model, training, LeastSquares(1), data, data, seed=5)
    grid = InlineGrid(client_app(lambda *_: node), 1)
    ((new, _),) = play(FedAvg(compression=RandomMask(share=0.3)), grid, zeros(10), 1)
    found = np.array(weights(new))
    (seed,) = np.random.default_rng([5, 1, 0, 12]).integers(2**63, size=1).tolist()
    chosen = np.argsort(np.random.PCG64(seed).random_raw(10))[-3:]
    expected = np.zeros(10)
    expected[chosen] = 0.75 * (1 + chosen)
    assert found == pytest.approx(expected)
    trained = model.weight.detach().numpy().ravel()
    assert trained == pytest.approx(expected)  # what was not sent has not been trained


def test_a_low_rank_node_trains_b_alone() -> None:
    """The paper's own way: w = w_0 + A B with A fixed, and SGD with momentum on B from 0."""
    draws = torch.Generator().manual_seed(2)
    inputs, targets = torch.randn(30, 6, generator=draws), torch.randn(30, 4, generator=draws)
    model, start = nn.Linear(6, 4), nn.Linear(6, 4).state_dict()
    sgd = partial(SGD, lr=0.005, momentum=0.9)
    training = LocalTraining(optimizer=sgd, local_epochs=None, local_steps=5, batch_size=None)
    data = Examples(inputs, targets, torch.arange(30))
    node = Node(model, training, LeastSquares(4), data, data, seed=5)
    grid = InlineGrid(client_app(lambda *_: node), 1)
    ((new, _),) = play(FedAvg(compression=LowRank(share=0.5)), grid, ArrayRecord(start), 1)

    seed, _ = np.random.default_rng([5, 1, 0, 12]).integers(2**63, size=2).tolist()
    a = subspace(4, 2, seed).float()
    b, bias = torch.zeros(2, 6, requires_grad=True), start["bias"].clone().requires_grad_()
    optimizer = sgd([b, bias])
    for _ in range(5):
        optimizer.zero_grad()
        out = inputs @ (start["weight"] + a @ b).T + bias
        LeastSquares(4)(out, targets)[0].backward()
        optimizer.step()
    expected = torch.cat([(start["weight"] + a @ b).flatten(), bias]).tolist()
    assert weights(new) == pytest.approx(expected, abs=1e-6)
    trained = torch.cat([p.flatten() for p in model.parameters()]).tolist()
    assert trained == pytest.approx(expected, abs=1e-6)  # nothing has moved beside the subspace


def normed() -> nn.Module:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3))
    net[3].bias.requires_grad_(False)
    return net


def classifiers(nodes: int = 3, private: tuple[str, ...] = ()) -> InlineGrid:
    """Return nodes that share a model with buffers and a frozen bias."""
    draws = torch.Generator().manual_seed(1)
    inputs, targets = torch.randn(30 * nodes, 6, generator=draws), torch.arange(30 * nodes) % 3
    net = normed()
    training = LocalTraining(optimizer=partial(SGD, lr=0.2), batch_size=8, private=list(private))

    def node_of(message: Message, context: Context) -> Node:
        rows = torch.arange(30) + 30 * int(context.node_config["partition-id"])
        data = Examples(inputs, targets, rows)
        return Node(net, training, Classification(), data, data, seed=4)

    return InlineGrid(client_app(node_of), nodes)


def start() -> ArrayRecord:
    return ArrayRecord(normed().state_dict())


def strategy(compression: Compression) -> FedAvg:
    return FedAvg(compression=compression, query_partitions=True)


@pytest.mark.parametrize(
    "whole",
    [
        Sketch(bits=None),
        Sketch(bits=None, error_feedback=True),
        RandomMask(share=1.0),
        TopK(share=1.0),
        LowRank(share=1.0),
    ],
    ids=repr,
)
def test_all_places_as_they_are_is_fedavg_bit_for_bit(whole: Compression) -> None:
    plain = play(strategy(NoCompression()), classifiers(), start(), 3)
    coded = play(strategy(whole), classifiers(), start(), 3)
    for (one, _), (other, _) in zip(plain, coded, strict=True):
        for name in one:
            assert one[name].data == other[name].data, name


def test_a_reply_carries_codes_and_what_is_not_trained() -> None:
    ((_, replies),) = play(strategy(Sketch(share=0.5, bits=4)), classifiers(), start(), 1)
    for reply in replies:
        rest = {"1.running_mean", "1.running_var", "1.num_batches_tracked", "3.bias"}
        assert set(reply.content.array_records["arrays"]) == rest
        codes = reply.content.array_records["codes"]
        sizes = {"0.weight": 30, "0.bias": 5, "1.weight": 5, "1.bias": 5, "3.weight": 15}
        lengths = {name: 8 + 8 + -(-4 * -(-size // 2) // 8) for name, size in sizes.items()}
        assert {name: len(view(code)) for name, code in codes.items()} == lengths


def test_nodes_draw_places_of_their_own_and_new_ones_in_each_round() -> None:
    history = play(strategy(Sketch(share=0.2, bits=None)), classifiers(), start(), 2)
    heads = {
        view(reply.content.array_records["codes"]["0.weight"]).tobytes()[:8]
        for _, replies in history
        for reply in replies
    }
    assert len(heads) == 6


def test_what_the_server_reads_is_what_the_node_meant() -> None:
    """The mean of the decoded updates, beside the strategy's step."""
    history = play(strategy(Sketch(share=0.5, bits=None)), classifiers(), start(), 1)
    ((new, replies),) = history
    this = strategy(Sketch(share=0.5, bits=None))
    layout = this.check(start())
    w = layout.flatten_parameters(start())
    rows = torch.zeros(3, layout.num_parameters)
    for row, reply in zip(rows, replies, strict=True):
        decoded(reply, None, layout, this.compression, w, row)
    assert (rows == 0).float().mean() > 0.3
    assert layout.flatten_parameters(new).numpy() == pytest.approx((w - rows.mean(0)).numpy(), abs=1e-6)


def test_a_stock_client_that_sends_its_weights_is_read_as_ever() -> None:
    stock = classifiers()
    ours = play(strategy(NoCompression()), classifiers(), start(), 1)[0][0]
    this = strategy(Sketch(share=0.5))
    list(this.configure_train(1, start(), ConfigRecord(), stock))
    for message in this._sent.values():  # it does not know what is asked
        config = message.content.config_records["config"]
        for key in [key for key in config if key.startswith("compression")]:
            del config[key]
    new, _ = this.aggregate_train(1, stock.send_and_receive(this._sent.values()))
    assert new is not None
    assert weights(new) == weights(ours)


def as_code(code: bytes) -> Array:
    return Array(np.frombuffer(code, np.uint8).copy())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda codes: codes.update({"0.bias": as_code(b"123")}),
            "sent unreadable arrays (a code of 0 bytes",
        ),
        (lambda codes: codes.pop("0.bias"), "lacks '0.bias' of the model's arrays"),
        (lambda codes: codes.update({"x": as_code(b"")}), "sent a code for 'x', which is no parameter"),
        (lambda codes: codes.update({"1.running_mean": as_code(b"")}), "a code for '1.running_mean'"),
        (lambda codes: codes.update({"0.bias": Array(np.ones(3))}), "of 1 dimensions of torch.float64"),
        (
            lambda codes: codes.update({"0.bias": as_code(bytes(8) + np.full(3, np.nan, "f4").tobytes())}),
            "sent NaN or infinite values",
        ),
    ],
    ids=["short", "missing", "unknown", "of a buffer", "no bytes", "NaN"],
)
def test_a_reply_with_bad_codes_is_left_out_by_name(
    change: Callable[[ArrayRecord], None], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    this, grid = strategy(Sketch(share=0.5, bits=None)), classifiers()
    replies = grid.send_and_receive(this.configure_train(1, start(), ConfigRecord(), grid))
    change(replies[1].content.array_records["codes"])
    new, metrics = this.aggregate_train(1, replies)
    assert new is not None
    assert metrics["failed"] == 1
    assert "partition 1 left out: " in caplog.text
    assert said in caplog.text


def test_codes_that_nobody_has_asked_for_are_no_model(caplog: pytest.LogCaptureFixture) -> None:
    grid, coding, plain = classifiers(), strategy(Sketch()), strategy(NoCompression())
    list(plain.configure_train(1, start(), ConfigRecord(), grid))
    list(coding.configure_train(1, start(), ConfigRecord(), grid))
    for k, message in plain._sent.items():
        message.content["config"] = coding._sent[k].content["config"]
    _, metrics = plain.aggregate_train(1, grid.send_and_receive(plain._sent.values()))
    assert metrics["failed"] == 3
    assert "of the model's arrays" in caplog.text


@pytest.mark.parametrize(
    "compression",
    [
        TopK(share=0.1),
        ScaledSign(),
        Sketch(0.1, 4, True),
        Sketch(0.1, None, True),
        Sketch(0.1, 4, True, True),
    ],
    ids=repr,
)
def test_a_node_that_diverges_is_left_out_and_keeps_what_it_had(
    compression: Compression, caplog: pytest.LogCaptureFixture
) -> None:
    """One number of ten is infinite, which a tenth of the places would mostly miss."""
    grid = quadratic(rate=3e38, target=torch.eye(10)[:1].T * 4)
    (node,) = grid.get_node_ids()
    grid.context(node).state["left-out"] = ArrayRecord({"weight": torch.arange(10.0)})
    play(FedAvg(compression=compression), grid, zeros(10), 1)
    assert "partition 0 left out: sent NaN or infinite values" in caplog.text
    assert weights(grid.context(node).state.array_records["left-out"]) == list(range(10))


@pytest.mark.parametrize(
    "compression",
    [Sketch(0.3, 2), Sketch(1.0, 2, rotate=True), TopK(0.1), RandomMask(0.3), LowRank()],
    ids=repr,
)
def test_a_private_layer_stays_where_it_is(compression: Compression) -> None:
    frozen = start()
    for model, _ in play(strategy(compression), classifiers(private=("3.*",)), frozen, 2):
        assert model["3.weight"].data == frozen["3.weight"].data
        assert model["0.weight"].data != frozen["0.weight"].data


def test_scaffolds_variates_travel_beside_the_codes() -> None:
    this = Scaffold(compression=Sketch(share=0.5), query_partitions=True)
    ((new, replies),) = play(this, classifiers(), start(), 1)
    assert weights(new) != weights(start())
    assert all({"codes", "control"} <= set(reply.content.array_records) for reply in replies)


def test_the_noise_comes_first() -> None:
    """What is coded is the clipped update."""
    grid, asked = quadratic(), LocalPrivacy(clip=0.5, noise_multiplier=0.0)
    private = FedAvg(weighting=Uniform(), privacy=asked, compression=TopK(share=0.5))
    ((new, _),) = play(private, grid, zeros(), 1)
    assert weights(new) == pytest.approx([0.5 * 2 / 5**0.5, 0], abs=1e-6)  # (-2, 1) is cut to 0.5
    (node,) = grid.get_node_ids()
    assert weights(grid.context(node).state.array_records["left-out"]) == pytest.approx(
        [0, 0.5 / 5**0.5], abs=1e-6
    )


def test_each_groups_model_has_its_own_feedback() -> None:
    grid = quadratic()
    both = Grouped(inner=FedAvg(compression=TopK(share=0.5)), groups={"a": (0,), "b": (0,)})
    play(both, grid, zeros(), 1)
    (node,) = grid.get_node_ids()
    assert set(grid.context(node).state.array_records) == {"left-out a", "left-out b"}


def test_who_remembers() -> None:
    assert FedAvg(compression=TopK()).nodes_remember
    assert not FedAvg(compression=Sketch()).nodes_remember
    assert Grouped(inner=FedAvg(compression=ScaledSign())).nodes_remember
    assert not FedAvg().nodes_remember
