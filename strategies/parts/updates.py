"""Updates: the pseudo-gradients of one round, as the parts see them."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from .layout import Layout, blocks


@dataclass(frozen=True)
class Updates:
    """One round's pseudo-gradients, a row per node, rows in the order of partition ids.

    They hold for the round: the next one's are written over them, so a part that remembers any copies it.

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
    """

    deltas: Tensor
    buffers: Tensor
    num_examples: Tensor
    partition_ids: tuple[int, ...]
    layout: Layout
    start: Tensor
    metrics: dict[str, Tensor] = field(default_factory=dict)
    rows: Tensor | None = None

    def without(self, partition_ids: Collection[int]) -> "Updates":
        """Return a copy without the rows of some nodes; each row is one node's."""
        kept = [row for row, k in enumerate(self.partition_ids) if k not in partition_ids]
        return replace(
            self,
            deltas=self.deltas[kept],
            buffers=self.buffers[kept],
            num_examples=self.num_examples[kept],
            partition_ids=tuple(self.partition_ids[row] for row in kept),
            metrics={name: values[kept] for name, values in self.metrics.items()},
        )

    def mean(self, weights: Tensor) -> Tensor:
        """Return the mean pseudo-gradient [P]: sum over k of alpha_k * Delta_k.

        ``weights`` is [K], one alpha per node, or [K, L], one per node and layer of the layout.
        """
        return self._mean(self.deltas, weights, buffer=False)

    def pieces(self, weights: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """Yield all columns of the deltas, a block at a time, with the nodes' weights [K] there."""
        weights = weights.to(self.deltas)
        if weights.ndim == 1:
            for block in blocks(self.deltas):
                yield block, weights
            return
        for column, layer in enumerate(self.layout.layers):
            if not layer.buffer:
                for block in blocks(self.deltas, layer.columns):
                    yield block, weights[:, column]

    def mean_buffers(self, weights: Tensor) -> Tensor:
        """Return the buffers' mean [B] under the same weights (see :meth:`mean`)."""
        return self._mean(self.buffers, weights, buffer=True)

    def _mean(self, rows: Tensor, weights: Tensor, *, buffer: bool) -> Tensor:
        if self.rows is not None:
            weights = weights.new_zeros(len(rows)).index_add_(0, self.rows, weights)
        weights = weights.to(rows)
        if weights.ndim == 1:
            return weights @ rows
        out = torch.empty_like(rows[0])
        for column, layer in enumerate(self.layout.layers):
            if layer.buffer == buffer:
                out[layer.columns] = weights[:, column] @ rows[:, layer.columns]
        return out
