"""Frozen parameters: nobody trains them, so they travel to each node once and are known by a hash.

A message that names the hash leaves out what the node has: the values of its own model, or those that an
earlier message brought. A reply that names the hash says that the node has them.
"""

import hashlib
from collections.abc import Collection, Mapping

import torch
from flwr.app import Array, ArrayRecord

from . import held

DIGITS = 32  # of the hash, hexadecimal


def hash_values(arrays: Mapping[str, Array]) -> str:
    """Return a hash of names, shapes, dtypes and values, in whatever order and memory these lie."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        values = held.values_of(arrays[name]).detach().cpu().contiguous().numpy()
        digest.update(repr((name, str(values.dtype), values.shape)).encode())
        digest.update(values.reshape(-1).view("uint8").data)
    return digest.hexdigest()[:DIGITS]


def without(arrays: ArrayRecord, names: Collection[str]) -> ArrayRecord:
    """Return the record without the arrays of these names."""
    rest = ArrayRecord()  # made from a dictionary it would ask for the bytes
    for name, array in arrays.items():
        if name not in names:
            rest[name] = array
    return rest


def has_same_values(one: Array, other: Array) -> bool:
    """Say whether two arrays have the same dtype, shape and values, wherever they lie."""
    if one is other:
        return True
    if (one.dtype, tuple(one.shape)) != (other.dtype, tuple(other.shape)):
        return False
    values, others = held.values_of(one), held.values_of(other)
    return values.dtype == others.dtype and torch.equal(values.to(others.device), others)
