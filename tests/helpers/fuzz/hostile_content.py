"""What a hostile node makes of a sound reply, and whether NumPy alone can read what came of it."""

import io
import math
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from helpers.hostile import start

NUMBERS: tuple[object, ...] = (
    *(float("nan"), float("inf"), float("-inf"), 1e308, -1e308, 5e-324, -0.0, 0.0, 3.7, -1.0),
    *(0, 1, -1, 2**53, 2**53 + 1, 2**63, 10**400, -(10**400), 10**5000, True, None, "3", "nan", b"1"),
    *([], [1.0], [float("nan")], [2, 3]),
)
VALUES = (float("nan"), float("inf"), float("-inf"), 1e300, -1e39, 3e38, 70000.0, 1e-320, 0.0, 1.0)
DTYPES = ("?", "i1", "u8", "i8", "f2", "f4", "f8", ">f4", ">f8", "g", "c8", "U3", "S2", "M8[s]", "O", "V4")
Change = Callable[[Random, RecordDict], None]


def _a_number(random: Random, content: RecordDict) -> None:
    """Write past Flower's own check: what a record would not take may still come from a client in here."""
    record = random.choice([*content.metric_records.values()] or [MetricRecord()])
    name = random.choice([*record, "num-examples", "num-examples", "new", "line\nbreak", ""])
    record.__dict__["_data"][name] = random.choice(NUMBERS)


def _no_number(random: Random, content: RecordDict) -> None:
    record = random.choice([*content.metric_records.values()] or [MetricRecord()])
    for name in random.sample([*record], random.randint(min(1, len(record)), len(record))):
        del record[name]


def _an_array(random: Random, content: RecordDict) -> None:
    record, name = _drawn(random, content)
    if name is None:
        return
    honest = start()[name] if name in start() else np.ones(3, np.float32)
    values = random.choice((_filled, _of_another_dtype, _of_another_shape))(random, honest)
    sent = Array(np.asarray(values)) if values.dtype != object else _objects(values)
    if random.random() < 0.5:  # it may claim to be what it should be
        sent = Array(record[name].dtype, record[name].shape, "numpy.ndarray", sent.data)
    record[name] = sent


def _bytes(random: Random, content: RecordDict) -> None:
    record, name = _drawn(random, content)
    if name is None:
        return
    array, data = record[name], record[name].data
    for _ in range(random.choice((1, 1, 3, 20))):
        place = random.randrange(len(data) + 1)
        end = random.choice((place, place + 1, place + 1, len(data)))
        data = data[:place] + random.randbytes(random.choice((0, 1, 1, 5))) + data[end:]
    record[name] = Array(array.dtype, array.shape, array.stype, data)


def _names(random: Random, content: RecordDict) -> None:
    record, name = _drawn(random, content)
    if name is None:
        return
    array = record[name]
    if random.random() < 0.7:
        del record[name]
    if random.random() < 0.7:
        record[random.choice((name.upper(), name + "\n", "", "a.b", *start()))] = array


def _records(random: Random, content: RecordDict) -> None:
    name = random.choice([*content])
    record = content.pop(name)
    drawn = random.random()
    if drawn < 0.3:
        content[random.choice(("other", "arrays", "metrics", "control"))] = record
    elif drawn < 0.6:
        content[name] = random.choice((ArrayRecord(), MetricRecord(), ConfigRecord({"num-examples": 3})))


CHANGES: tuple[Change, ...] = (
    _a_number,
    _a_number,
    _no_number,
    _an_array,
    _an_array,
    _bytes,
    _names,
    _records,
)


def _drawn(random: Random, content: RecordDict) -> tuple[ArrayRecord, str | None]:
    record = random.choice([*content.array_records.values()] or [ArrayRecord()])
    return record, random.choice([*record] or [None])


def _filled(random: Random, values: np.ndarray) -> np.ndarray:
    wide = values.astype(np.float64).reshape(-1)
    wide[random.randrange(wide.size) :] = random.choice(VALUES)
    with np.errstate(all="ignore"):
        return wide.reshape(values.shape).astype(random.choice((values.dtype, np.dtype("f8"))))


def _of_another_dtype(random: Random, values: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return values.astype(np.int64).astype(np.dtype(random.choice(DTYPES)))


def _of_another_shape(random: Random, values: np.ndarray) -> np.ndarray:
    return random.choice(
        (values.T, values.reshape(-1), values[None], values.reshape(-1)[:1], np.asfortranarray(values))
    )


def _objects(values: np.ndarray) -> Array:
    stream = io.BytesIO()
    np.save(stream, values, allow_pickle=True)
    return Array("float32", values.shape, "numpy.ndarray", stream.getvalue())


class Unsound(Exception):
    """Why nobody should take a reply."""


def read_plainly(content: RecordDict, *, arrays: tuple[str, ...]) -> RecordDict:
    """Return the reply as a node would send it that means the same.

    ``arrays`` are the records that it must carry, beside metrics. Raises ``Unsound`` where there is none.
    """
    metrics: dict[str, Any] = dict(next(iter(content.metric_records.values()), {}))  # it may have any name
    numbers = {name: value for name, value in metrics.items() if type(value) in (int, float)}
    if not 0 <= numbers.get("num-examples", -1) <= 2**53:
        raise Unsound("no number of examples")
    if not all(abs(value) < 2**1024 and math.isfinite(value) for value in numbers.values()):
        raise Unsound("a metric that is no number")
    read = RecordDict({"metrics": MetricRecord(numbers)})
    for name in arrays:
        named = content.array_records.get(name)
        others = [record for other, record in content.array_records.items() if other not in arrays]
        sent = named if named is not None else next(iter(others), ArrayRecord())
        read[name] = _model(sent, parameters_only=name == "control")
    return read


def _model(sent: ArrayRecord, *, parameters_only: bool) -> ArrayRecord:
    expected = {k: v for k, v in start().items() if not (parameters_only and k.startswith("bn."))}
    if sent.keys() != expected.keys():
        raise Unsound("other names")
    model: dict[str, Array] = {}
    for name, like in expected.items():
        try:
            values = np.load(io.BytesIO(sent[name].data), allow_pickle=False)
        except Exception as error:
            raise Unsound(f"unreadable: {error}") from error
        if values.shape != like.shape or values.dtype.kind not in ("f" if like.ndim > 1 else "biuf"):
            raise Unsound(f"{name} of {values.dtype} and shape {values.shape}")
        wide = values.astype(np.float64)
        most = 2.0**63 if like.dtype.kind == "i" else float(np.finfo(like.dtype).max)
        if not (np.abs(wide) <= most).all() or (like.dtype.kind == "i" and (np.abs(wide) == most).any()):
            raise Unsound(f"{name} beyond {like.dtype}")
        model[name] = Array(wide)
    return ArrayRecord(model)
