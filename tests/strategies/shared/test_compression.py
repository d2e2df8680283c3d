"""Codes by hand, their expectation, what they leave out, and bytes that are none."""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch

from strategies import Compression, FedAvg, LowRank, NoCompression, RandomMask, ScaledSign, Sketch, TopK
from strategies.shared import codecs
from strategies.shared.codecs import requested_compression
from strategies.shared.quantization import dequantize, quantize

F4 = np.dtype(np.float32)
EVERY = [
    Sketch(bits=None),
    Sketch(),
    Sketch(share=0.3, bits=None),
    Sketch(share=0.3, bits=3),
    Sketch(share=0.3, bits=4, error_feedback=True),
    RandomMask(share=0.5),
    RandomMask(share=0.5, bits=16),
    TopK(share=0.4),
    TopK(share=0.4, bits=2),
    ScaledSign(),
    Sketch(bits=2, rotate=True),
    Sketch(share=0.3, bits=1, rotate=True),
    RandomMask(share=0.5, bits=4, rotate=True),
    TopK(share=0.4, bits=4, rotate=True),
    LowRank(),
    LowRank(share=0.5, bits=4, rotate=True),
]


def floats(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


def array(*values: float) -> np.ndarray:
    return np.array(values, F4)


def sent(compression: Compression, values: np.ndarray, seed: int = 3) -> np.ndarray:
    return compression.decode(compression.encode(values, seed), values.shape, values.dtype)


def test_whole_levels_by_hand() -> None:
    """Of 2 bits there are four levels, 0 to 3 here: 00, 10, 01, 11 with the lowest bit first."""
    code = quantize(array(0, 1, 2, 3), 2, seed=5)
    assert code == floats(0, 3) + bytes([0b00100111])
    assert dequantize(code, 4, 2, F4).tolist() == [0, 1, 2, 3]


def test_one_bit_is_the_least_or_the_largest_number() -> None:
    """The paper's rule: the largest with probability (h - h_min) / (h_max - h_min)."""
    values = array(-1, 0, 2, 3)
    actual = np.array([dequantize(quantize(values, 1, seed), 4, 1, F4) for seed in range(4000)])
    assert set(actual.ravel().tolist()) == {-1, 3}
    assert (actual == 3).mean(0) == pytest.approx([0, 0.25, 0.75, 1], abs=0.03)


@pytest.mark.parametrize("bits", [1, 3, 8, 16])
def test_a_number_goes_to_a_level_beside_it_and_is_itself_on_average(bits: int) -> None:
    values = np.random.default_rng(0).normal(size=40)
    step = (values.max() - values.min()) / (2**bits - 1)
    actual = np.array(
        [dequantize(quantize(values, bits, seed), 40, bits, values.dtype) for seed in range(900)]
    )
    levels = (actual - values.min()) / step
    assert np.abs(levels - levels.round()).max() < 1e-6
    assert np.abs(actual - values).max() < step * (1 + 1e-9)
    assert np.abs(actual.mean(0) - values).max() < 4 * step / 2 / 30  # 4 standard errors, at most


@pytest.mark.parametrize("compression", EVERY, ids=repr)
def test_equal_numbers_and_none_at_all(compression: Compression) -> None:
    """Zeros, as of a layer that stays at its node, come as zeros; an array may be empty."""
    assert sent(compression, np.zeros(50, F4)).tolist() == [0] * 50
    assert sent(compression, np.zeros(0, F4)).tolist() == []
    assert len(sent(compression, np.ones(1, np.float64))) == 1


def places(size: int, count: int, seed: int) -> np.ndarray:
    """Return where the largest of a seed's 64-bit numbers are."""
    return np.sort(np.argsort(np.random.PCG64(seed).random_raw(size))[-count:])


def test_a_subsample_by_hand() -> None:
    """3 of 10 numbers, times 10 / 3; the code is the seed, and these."""
    values = np.arange(1, 11).astype(F4)
    compression = Sketch(share=0.3, bits=None)
    chosen = places(10, 3, seed=7)
    expected = np.zeros(10, F4)
    expected[chosen] = values[chosen] * F4.type(10 / 3)
    code = compression.encode(values, 7)
    assert code == (7).to_bytes(8, "little") + expected[chosen].tobytes()
    assert sent(compression, values, 7).tolist() == expected.tolist()


def test_a_subsample_is_the_update_on_average() -> None:
    values = np.random.default_rng(1).normal(size=20)
    actual = np.mean([sent(Sketch(share=0.25, bits=4), values, seed) for seed in range(6000)], axis=0)
    assert actual == pytest.approx(values, abs=0.12)


def test_with_error_feedback_and_on_a_mask_numbers_stay_as_they_are() -> None:
    values = np.arange(1, 11).astype(F4)
    for compression in (Sketch(share=0.3, bits=None, error_feedback=True), RandomMask(share=0.3)):
        actual = sent(compression, values, 7)
        assert np.flatnonzero(actual).tolist() == places(10, 3, 7).tolist()
        assert (actual[actual != 0] == values[actual != 0]).all()


def test_a_node_trains_what_it_will_send() -> None:
    left = RandomMask(share=0.3).restriction(torch.zeros(2, 5), 7)
    assert left is not None
    assert left(torch.full((2, 5), 4.0)).flatten().nonzero().flatten().tolist() == places(10, 3, 7).tolist()
    assert RandomMask.restricts
    for all_of_it in (RandomMask(share=1.0), LowRank(share=1.0)):
        assert all_of_it.restriction(torch.zeros(2, 5), 7) is None
    assert RandomMask(share=0.3).restriction(torch.zeros(0, 5), 7) is None
    for whole in (Sketch(share=0.3), TopK()):
        assert whole.restriction(torch.zeros(2, 5), 7) is None
        assert not whole.restricts


def test_the_largest_by_hand() -> None:
    """Magnitudes count, of equal ones the first; 8 places are a bitmap of one byte."""
    compression = TopK(share=0.25)
    code = compression.encode(array(2, -5, 1, -2, 0, 5, 5, 0), 0)
    assert code == bytes([0b01000100]) + floats(-5, 5)
    assert sent(TopK(share=0.5), array(2, -2, 1, 2)).tolist() == [2, -2, 0, 0]


def test_few_places_of_many_are_sent_as_numbers() -> None:
    values = np.zeros(1000, F4)
    values[[3, 700]] = 1, -4
    compression = TopK(share=0.002)
    code = compression.encode(values, 0)
    assert code == struct.pack("<2I", 3, 700) + floats(1, -4)
    assert (sent(compression, values) == values).all()


def test_signs_by_hand() -> None:
    """(3 + 1 + 2 + 4) / 4 = 2.5."""
    code = ScaledSign().encode(array(3, -1, 2, -4), 0)
    assert code == floats(2.5) + bytes([0b10100000])
    assert sent(ScaledSign(), array(3, -1, 2, -4)).tolist() == [2.5, -2.5, 2.5, -2.5]
    assert sent(ScaledSign(), array(2, -2, -2)).tolist() == [2, -2, -2]


def test_a_zero_has_either_sign_by_the_seed() -> None:
    values = np.zeros((100, 20), np.float32)
    values[:, 0] = 20
    for layout in (values, np.asfortranarray(values)):
        actual = decoded(ScaledSign(), layout, seed=4)
        assert (actual[:, 0] == 1).all()
        assert set(np.unique(actual[:, 1:])) == {-1, 1}
        assert abs(actual[:, 1:].mean()) < 0.05
        assert (actual == decoded(ScaledSign(), values, seed=4)).all()
    assert (actual != decoded(ScaledSign(), values, seed=5)).any()


def decoded(compression: Compression, values: np.ndarray, seed: int) -> np.ndarray:
    return compression.decode(compression.encode(values, seed), values.shape, values.dtype)


def test_what_lacks_its_settings_is_refused() -> None:
    with pytest.raises(ValueError, match="asks for compression='sketch' without its settings"):
        requested_compression({"compression": "sketch"})


@pytest.mark.parametrize(
    "whole", [Sketch(bits=None), RandomMask(share=1.0), TopK(share=1.0), LowRank(1.0)], ids=repr
)
def test_all_places_as_they_are_is_the_update_bit_for_bit(whole: Compression) -> None:
    for dtype in (np.float32, np.float64, np.float16):
        values = np.random.default_rng(2).normal(size=(9, 11)).astype(dtype)
        assert sent(whole, values).tobytes() == values.tobytes()


@pytest.mark.parametrize("shrinks", [TopK(share=0.1), ScaledSign(), Sketch(0.1, None, True)], ids=repr)
def test_what_needs_error_feedback_leaves_out_less_than_there_was(shrinks: Compression) -> None:
    """||p - C(p)|| <= ||p||: the condition of Karimireddy et al. 2019, on which error feedback rests."""
    for seed in range(20):
        values = np.random.default_rng(seed).standard_t(2, size=300)
        assert np.linalg.norm(values - sent(shrinks, values, seed)) < np.linalg.norm(values)


@pytest.mark.parametrize(
    ("compression", "shape"),
    [
        (Sketch(1.0, 2, True), (200,)),
        (TopK(0.5, 2), (200,)),
        (Sketch(0.5, 2, True), (200,)),
        (Sketch(0.5, 3, True, True), (200,)),
        (Sketch(1.0, 2, True), (20_000,)),
        (Sketch(1.0, 3, True, True), (20_000,)),
        (TopK(0.5, 3, rotate=True), (20_000,)),
        (LowRank(0.9, 3, True), (40, 500)),
    ],
    ids=repr,
)
def test_what_is_left_out_stays_bounded(compression: Compression, shape: tuple[int, ...]) -> None:
    left_out = np.zeros(shape)
    draws = np.random.default_rng(0)
    for seed in range(300 if shape == (200,) else 60):
        update = draws.normal(size=shape) + left_out
        left_out = update - sent(compression, update, seed)
    assert np.abs(left_out).max() < 60


@pytest.mark.parametrize("compression", EVERY, ids=repr)
@pytest.mark.parametrize(
    "spoilt",
    [lambda c: c[:-1], lambda c: c + b"\0", lambda c: b"", lambda c: c[: len(c) // 2]],
    ids=["cut", "longer", "empty", "half"],
)
def test_a_code_of_another_length_is_refused(
    compression: Compression, spoilt: Callable[[bytes], bytes]
) -> None:
    code = compression.encode(np.arange(80).astype(F4), 1)
    with pytest.raises(ValueError, match=r"a code of \d+ bytes, expected \d+"):
        compression.decode(spoilt(code), (80,), F4)


@pytest.mark.parametrize("places", [(3, 1000), (700, 3), (3, 3)], ids=["beyond", "descending", "twice"])
def test_places_that_are_none_are_refused(places: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="positions that are not 2 of 1000"):
        TopK(share=0.002).decode(struct.pack("<2I", *places) + floats(1, 1), (1000,), F4)
    with pytest.raises(ValueError, match="positions that are not 2 of 8"):
        TopK(share=0.25).decode(bytes([0b11100000]) + floats(1, 1), (8,), F4)


@pytest.mark.parametrize("compression", EVERY, ids=repr)
def test_what_is_not_finite_is_sent_as_such(compression: Compression) -> None:
    assert not np.isfinite(sent(compression, np.full(30, np.inf, F4))).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Sketch(share=0), r"compression\.share=0 is out of range: expected in \(0, 1\]"),
        (lambda: TopK(share=1.5), r"compression\.share=1\.5 is out of range"),
        (
            lambda: Sketch(bits=0),
            r"compression\.bits=0 is out of range: expected a whole number from 1 to 16",
        ),
        (lambda: Sketch(bits=32), r"compression\.bits=32 is out of range"),
        (lambda: Sketch(bits=True), r"compression\.bits=True is out of range"),
        (
            lambda: TopK(bits=1),
            "would grow from round to round; set 2 bits or more, or compression=scaled_sign",
        ),
        (lambda: TopK(bits=2, rotate=True), "would grow from round to round; set 3 bits or more"),
        (
            lambda: LowRank(bits=2, error_feedback=True),
            "would grow from round to round; set 3 bits or more",
        ),
        (lambda: Sketch(bits=None, rotate=True), r"set compression\.bits to 1 to 16"),
    ],
)
def test_what_makes_no_sense_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("compression", EVERY, ids=repr)
def test_a_node_makes_of_the_message_what_the_server_means(compression: Compression) -> None:
    assert requested_compression(compression.train_config()) == compression


def test_nothing_is_asked_where_nothing_is_compressed() -> None:
    assert NoCompression().train_config() == {}
    assert requested_compression({"server-round": 1}) is None


def test_a_compression_that_a_node_does_not_know() -> None:
    with pytest.raises(ValueError, match="asks for compression='gzip', and this node knows low-rank, "):
        requested_compression({"compression": "gzip"})


def test_a_node_builds_a_compression_of_the_user_s_own_only_where_it_is_named() -> None:
    @dataclass(frozen=True)
    class Own(TopK):
        kind: ClassVar[str] = "own"

    config = Own(share=0.5).train_config()
    with pytest.raises(ValueError, match="asks for compression='own', and this node knows"):
        requested_compression(config)
    assert requested_compression(config, (*codecs.COMPRESSIONS, Own)) == Own(share=0.5)
    assert type(requested_compression(TopK().train_config())) is TopK  # whatever else is defined


def test_one_that_no_message_can_name_is_refused() -> None:
    @dataclass(frozen=True)
    class Nameless(Compression):
        def encode(self, values: np.ndarray, seed: int) -> bytes:
            return values.tobytes()

        def decode(self, code: bytes, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
            return np.frombuffer(code, dtype).reshape(shape)

    with pytest.raises(ValueError, match=r"compression=Nameless .* a class with a kind"):
        FedAvg(compression=Nameless())


def test_the_share_is_of_whole_places() -> None:
    counts = [Sketch(share=share).count(size) for share, size in ((0.1, 30), (0.1, 31), (0.01, 5), (1, 7))]
    assert counts == [3, 4, 1, 7]
    assert len(codecs.TopK(share=0.1).encode(np.arange(1000).astype(F4), 0)) == 125 + 400
    assert len(codecs.Sketch(share=0.1, bits=4).encode(np.arange(1000).astype(F4), 0)) == 8 + 8 + 50
