"""Flower's records as plain containers of tensors, which torch reads without running code."""

from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from torch import Tensor

from strategies.shared.held import values_of

RECORDS = {record.__name__: record for record in (ArrayRecord, ConfigRecord, MetricRecord, RecordDict)}


def packed(value: Any) -> Any:
    """Return a value made of dicts, lists, records and tensors in that form."""
    if isinstance(value, Array):
        return values_of(value).cpu()
    if isinstance(value, Tensor):
        return value.cpu()  # a run may go on where there is no accelerator
    if type(value).__name__ in RECORDS:
        return {type(value).__name__: {name: packed(item) for name, item in value.items()}}
    if isinstance(value, dict):
        return {"dict": {key: packed(item) for key, item in value.items()}}
    if isinstance(value, list | tuple):
        return type(value)(packed(item) for item in value)
    return value


def unpacked(value: Any) -> Any:
    """Return what was packed."""
    if isinstance(value, dict):
        ((kind, items),) = value.items()
        content = {key: unpacked(item) for key, item in items.items()}
        if kind == "ArrayRecord":
            return ArrayRecord({name: Array(tensor.numpy()) for name, tensor in content.items()})
        return RECORDS[kind](content) if kind in RECORDS else content
    if isinstance(value, list | tuple):
        return type(value)(unpacked(item) for item in value)
    return value
