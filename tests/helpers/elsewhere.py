"""A pretended accelerator: tensors that say they lie elsewhere, and do not mix with those in host memory.

Its name is torch's ``meta`` device. Values are kept on the CPU, and computed there, so that results can be
compared to the bit; an operation on tensors of both kinds fails, as it would on a real accelerator.
"""

from typing import Any

import torch
from torch import Tensor
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

DEVICE = torch.device("meta")
HOST = torch.device("cpu")
CROSSES = (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default)


class Far(Tensor):
    """A tensor on the pretended accelerator."""

    values: Tensor

    @staticmethod
    def __new__(cls, values: Tensor) -> "Far":
        if values.dtype == torch.float64:
            raise TypeError("no float64 on the pretended accelerator, as on Apple's")
        return torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined, no-any-return]
            cls, values.shape, values.stride(), values.storage_offset(), dtype=values.dtype, device=DEVICE
        )

    def __init__(self, values: Tensor) -> None:
        self.values = values

    def __repr__(self, **_: Any) -> str:
        return f"Far({self.values})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with Accelerator():
            return func(*args, **(kwargs or {}))


class Accelerator(TorchDispatchMode):
    """While it is entered, tensors can be made on, sent to and brought back from the accelerator."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        far = [leaf for leaf in given if isinstance(leaf, Far)]
        near = [leaf for leaf in given if not isinstance(leaf, Far) and leaf.ndim > 0]
        if far and near and func not in CROSSES:
            raise RuntimeError(f"{func}: tensors lie on both devices")
        wanted = kwargs.get("device")
        if wanted is not None:
            kwargs["device"] = HOST
        device = DEVICE if (wanted is None and far) or (wanted and wanted.type == DEVICE.type) else HOST
        inner_args, inner_kwargs = tree_map(_inner, (args, kwargs))
        result = func(*inner_args, **inner_kwargs)
        if torch.Tag.inplace_view in func.tags and far:  # its shape is another one now
            with no_dispatch():
                func(*args, **kwargs)
        originals = {id(_inner(leaf)): leaf for leaf in given}
        return tree_map(lambda leaf: _outer(leaf, device, originals), result)


def _inner(leaf: Any) -> Any:
    return leaf.values if isinstance(leaf, Far) else leaf


def _outer(leaf: Any, device: torch.device, originals: dict[int, Tensor]) -> Any:
    if not isinstance(leaf, Tensor):
        return leaf
    if id(leaf) in originals:  # what was written in place
        return originals[id(leaf)]
    return Far(leaf) if device == DEVICE else leaf
