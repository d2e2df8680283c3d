"""Nodes that compress: what a reply carries, what the server reads, and whom it leaves out."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord

from helpers.compressing import classifiers, play, start, strategy, weights
from strategies import NoCompression, Scaffold, Sketch
from strategies.core.replies import read_coded_delta
from strategies.shared.arrays import view_values


def test_a_reply_carries_codes_and_what_is_not_trained() -> None:
    ((_, replies),) = play(strategy(Sketch(share=0.5, bits=4)), classifiers(), start(), 1)
    for reply in replies:
        rest = {"1.running_mean", "1.running_var", "1.num_batches_tracked", "3.bias"}
        assert set(reply.content.array_records["arrays"]) == rest
        codes = reply.content.array_records["codes"]
        sizes = {"0.weight": 30, "0.bias": 5, "1.weight": 5, "1.bias": 5, "3.weight": 15}
        lengths = {name: 8 + 8 + -(-4 * -(-size // 2) // 8) for name, size in sizes.items()}
        assert {name: len(view_values(code)) for name, code in codes.items()} == lengths


def test_nodes_draw_places_of_their_own_and_new_ones_in_each_round() -> None:
    history = play(strategy(Sketch(share=0.2, bits=None)), classifiers(), start(), 2)
    heads = {
        view_values(reply.content.array_records["codes"]["0.weight"]).tobytes()[:8]
        for _, replies in history
        for reply in replies
    }
    assert len(heads) == 6


def test_what_the_server_reads_is_what_the_node_meant() -> None:
    """The mean of the decoded updates, beside the strategy's step."""
    history = play(strategy(Sketch(share=0.5, bits=None)), classifiers(), start(), 1)
    ((new, replies),) = history
    server = strategy(Sketch(share=0.5, bits=None))
    layout = server.check(start())
    w = layout.flatten_parameters(start())
    rows = torch.zeros(3, layout.num_parameters)
    for row, reply in zip(rows, replies, strict=True):
        read_coded_delta(reply, None, layout, server.compression, w, row)
    assert (rows == 0).float().mean() > 0.3
    assert layout.flatten_parameters(new).numpy() == pytest.approx((w - rows.mean(0)).numpy(), abs=1e-6)


def test_a_stock_client_that_sends_its_weights_is_read_as_ever() -> None:
    stock = classifiers()
    ours = play(strategy(NoCompression()), classifiers(), start(), 1)[0][0]
    server = strategy(Sketch(share=0.5))
    list(server.configure_train(1, start(), ConfigRecord(), stock))
    for message in server._sent.values():  # it does not know what is asked
        config = message.content.config_records["config"]
        for key in [key for key in config if key.startswith("compression")]:
            del config[key]
    new, _ = server.aggregate_train(1, stock.send_and_receive(server._sent.values()))
    assert new is not None
    assert weights(new) == weights(ours)


def as_code(code: bytes) -> Array:
    return Array(np.frombuffer(code, np.uint8).copy())


@pytest.mark.parametrize(
    ("change", "message"),
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
    change: Callable[[ArrayRecord], None], message: str, caplog: pytest.LogCaptureFixture
) -> None:
    server, grid = strategy(Sketch(share=0.5, bits=None)), classifiers()
    replies = grid.send_and_receive(server.configure_train(1, start(), ConfigRecord(), grid))
    change(replies[1].content.array_records["codes"])
    new, metrics = server.aggregate_train(1, replies)
    assert new is not None
    assert metrics["failed"] == 1
    assert "partition 1 left out: " in caplog.text
    assert message in caplog.text


def test_codes_that_nobody_has_asked_for_are_no_model(caplog: pytest.LogCaptureFixture) -> None:
    grid, coding, plain = classifiers(), strategy(Sketch()), strategy(NoCompression())
    list(plain.configure_train(1, start(), ConfigRecord(), grid))
    list(coding.configure_train(1, start(), ConfigRecord(), grid))
    for k, message in plain._sent.items():
        message.content["config"] = coding._sent[k].content["config"]
    _, metrics = plain.aggregate_train(1, grid.send_and_receive(plain._sent.values()))
    assert metrics["failed"] == 3
    assert "of the model's arrays" in caplog.text


def test_scaffolds_variates_travel_beside_the_codes() -> None:
    strategy = Scaffold(compression=Sketch(share=0.5), query_partitions=True)
    ((new, replies),) = play(strategy, classifiers(), start(), 1)
    assert weights(new) != weights(start())
    assert all({"codes", "control"} <= set(reply.content.array_records) for reply in replies)
