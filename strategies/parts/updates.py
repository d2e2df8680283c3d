"""Updates: the pseudo-gradients of one round, as the parts see them."""

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from strategies.shared.flower_names import HasHooks

from .layout import Layout, blocks, squared_norms


class NoStep(Exception):
    """Why a round takes no step."""


class MissingReplies(NoStep):
    """The round has too few sound replies, or lacks that of a node that it needs."""


class NodeSum(NamedTuple):
    """A sum over the nodes: sum_k alpha_k f(Delta_k) if it is weighted, else sum_k f(Delta_k).

    Parameters
    ----------
    function : f, of one pseudo-gradient [P], or of each row of [K, P]
    is_weighted : whether a node counts as much as in the mean
    """

    function: Callable[[Tensor], Tensor]
    is_weighted: bool


SUMS: Mapping[str, NodeSum] = {  # what a part can ask :meth:`Updates.sum` for
    "squared-norms": NodeSum(squared_norms, is_weighted=True),
    "signs": NodeSum(torch.sign, is_weighted=False),
}


class Part(HasHooks):
    """Base of the parts of the update rule: each names what it needs of the nodes' updates."""

    sums: ClassVar[tuple[str, ...] | None] = None  # names of SUMS beside the mean; None: each update

    def __init_subclass__(cls, **settings: Any) -> None:
        """Refuse a sum that nobody computes."""
        super().__init_subclass__(**settings)
        if unknown := [name for name in cls.sums or () if name not in SUMS]:
            raise TypeError(f"{cls.__name__}.sums has {unknown[0]!r}: expected names out of {list(SUMS)}")


def describe_value(value: object) -> str:
    """Return in words what a part of the user's own gave."""
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    return "None" if value is None else f"a {type(value).__name__}"


def require_pair(name: str, part: object, result: tuple[Tensor, Any]) -> tuple[Tensor, Any]:
    """Return what a part gave; raise ``NoStep`` where it is no pair of a tensor and a state."""
    if not (isinstance(result, tuple | list) and len(result) == 2):
        what = describe_value(result)
        raise NoStep(f"{name}={type(part).__name__} gave {what}, expected a pair: a tensor, a state")
    return result


def require_by_layer(name: str, part: object, result: object, layout: Layout) -> Tensor:
    """Return a number for each parameter array, [L] in float64 in host memory; raise ``NoStep`` else."""
    blame, count = f"{name}={type(part).__name__} gave", len(layout.parameters)
    if not isinstance(result, Tensor) or result.shape != (count,):
        expected = f"a number, or one for each of the model's {count} parameter arrays"
        raise NoStep(f"{blame} {describe_value(result)}, expected {expected}")
    values = result.cpu().double()
    for layer, value in zip(layout.parameters, values.tolist(), strict=True):
        if not math.isfinite(value):
            raise NoStep(f"{blame} {value} for {layer.name!r}")
    return values


@dataclass(frozen=True)
class Updates:
    """One round's pseudo-gradients, a row per node, rows in the order of partition ids.

    They are valid for the round; the next round's are written over them: a part copies what it keeps.

    Parameters
    ----------
    deltas : [K, P], the pseudo-gradients Delta_k = w_t - w_k; the descent direction is minus them
    buffers : [K, B] in float64, the nodes' buffers as they came
    num_examples : [K] in float64, on how many examples each node trained
    partition_ids : K partition ids, ascending
    layout : the layer table that says which columns belong to which array
    start : [P], w_t, the parameters that the nodes started from
    metrics : {name: [K] in float64}, every scalar metric that all of the nodes sent
    rows : [K], the row of each node where some share one, which holds their mean; then there are fewer rows
    row_sums : {row: {name: sum}} of rows that hold a mean, over their nodes; a weighted one is a mean, too
    """

    deltas: Tensor
    buffers: Tensor
    num_examples: Tensor
    partition_ids: tuple[int, ...]
    layout: Layout
    start: Tensor
    metrics: dict[str, Tensor] = field(default_factory=dict)
    rows: Tensor | None = None
    row_sums: Mapping[int, Mapping[str, Tensor]] = field(default_factory=dict)

    def without(self, partition_ids: Collection[int]) -> "Updates":
        """Return a copy without the rows of some nodes; each row is one node's."""
        rows = [row for row, k in enumerate(self.partition_ids) if k not in partition_ids]
        return replace(
            self,
            deltas=self.deltas[torch.tensor(rows, dtype=torch.long).to(self.deltas.device)],
            buffers=self.buffers[torch.tensor(rows, dtype=torch.long).to(self.buffers.device)],
            num_examples=self.num_examples[rows],
            partition_ids=tuple(self.partition_ids[row] for row in rows),
            metrics={name: values[rows] for name, values in self.metrics.items()},
        )

    def mean(self, weights: Tensor) -> Tensor:
        """Return the mean pseudo-gradient [P]: sum over k of alpha_k * Delta_k.

        ``weights`` is [K], one alpha per node, or [K, L], one per node and layer of the layout.
        """
        return self._mean(self.deltas, weights, buffer=False)

    def sum(self, name: str, weights: Tensor | None = None) -> Tensor:
        """Return one of :data:`SUMS` over all nodes; ``weights`` are :meth:`mean`'s where it is weighted.

        It is computed from the rows; for a row that is the mean of several nodes, ``row_sums`` has it.
        """
        function = SUMS[name].function
        if self.row_sums:
            rows = enumerate(self.deltas)
            terms = [self.row_sums[k][name] if k in self.row_sums else function(d) for k, d in rows]
            values = torch.stack(terms)
        elif weights is None or weights.ndim == 1:
            values = function(self.deltas)
        else:
            layers = [
                (k, layer.columns) for k, layer in enumerate(self.layout.layers) if not layer.is_buffer
            ]
            each = [weights[:, k] @ function(self.deltas[:, columns]) for k, columns in layers]
            return reduce(torch.add, each)
        if weights is None:
            return values.sum(0)
        return self._by_row(weights, len(values)).to(values) @ values

    def iterate_blocks(self, weights: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """Yield all columns of the deltas, a block at a time, with the nodes' weights [K] there."""
        weights = weights.to(self.deltas)
        if weights.ndim == 1:
            for block in blocks(self.deltas):
                yield block, weights
            return
        for column, layer in enumerate(self.layout.layers):
            if not layer.is_buffer:
                for block in blocks(self.deltas, layer.columns):
                    yield block, weights[:, column]

    def mean_buffers(self, weights: Tensor) -> Tensor:
        """Return the buffers' mean [B] under the same weights (see :meth:`mean`)."""
        return self._mean(self.buffers, weights, buffer=True)

    def _mean(self, rows: Tensor, weights: Tensor, *, buffer: bool) -> Tensor:
        weights = self._by_row(weights, len(rows)).to(rows)
        if weights.ndim == 1:
            return weights @ rows
        out = torch.empty_like(rows[0])
        for column, layer in enumerate(self.layout.layers):
            if layer.is_buffer == buffer:
                out[layer.columns] = weights[:, column] @ rows[:, layer.columns]
        return out

    def _by_row(self, weights: Tensor, count: int) -> Tensor:
        """Return the weights of ``count`` rows; a row that nodes share has the sum of theirs."""
        if self.rows is None:
            return weights
        return weights.new_zeros(count).index_add_(0, self.rows, weights)
