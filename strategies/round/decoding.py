"""Decoding: a reply's pseudo-gradient, from plain weights or from codes (:mod:`clients.compression`)."""

from dataclasses import replace

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, Message
from torch import Tensor

from strategies.parts.layout import Layout
from strategies.shared import held, protocol
from strategies.shared.compression import Compression, NoCompression

from .replies import Fault, arrays_of, fitting


def decoded(
    reply: Message,
    extra: str | None,
    layout: Layout,
    compression: Compression,
    start: Tensor,
    out: Tensor,
) -> ArrayRecord:
    """Write Delta = w_t - w into ``out`` [P], ``start`` [P] being w_t; return the reply's plain arrays.

    A node may compress each of the parameters, or none: a stock client's reply has them all as they are.

    Raises
    ------
    Fault : for arrays that are not the model's
    ValueError : for codes that are none
    """
    codes = _codes_of(reply, layout, compression)
    rest = tuple(layer for layer in layout.layers if layer.name not in codes)
    plain = replace(layout, layers=rest) if codes else layout
    record = fitting(arrays_of(reply, extra), "arrays", plain)
    plain.flatten_parameters(record, out=out)
    torch.sub(start, out, out=out)
    for layer in layout.parameters if codes else ():
        if layer.name in codes:
            values = compression.decode(_bytes_of(codes[layer.name]), layer.shape, np.dtype(layer.dtype))
            out[layer.columns] = torch.from_numpy(values.flatten()).to(out)
    return record


def _codes_of(reply: Message, layout: Layout, compression: Compression) -> ArrayRecord:
    """Return a reply's codes; none where none were asked for."""
    found = reply.content.get(protocol.CODES)
    if isinstance(compression, NoCompression) or not isinstance(found, ArrayRecord):
        return ArrayRecord()
    known = {layer.name for layer in layout.parameters}
    if strange := [name for name in found if name not in known]:
        raise Fault(f"sent a code for {strange[0]!r}, which is no parameter of the model")
    return found


def _bytes_of(array: Array) -> bytes:
    values = held.values_of(array)
    if values.dtype != torch.uint8 or values.ndim != 1:
        raise ValueError(f"a code of {values.ndim} dimensions of {values.dtype}, expected bytes")
    return values.cpu().numpy().tobytes()
