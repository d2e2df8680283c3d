"""Each of several convolutions has its own weights, in their order; what follows takes the last one's."""

import numpy as np
import torch

from helpers.federation import record
from strategies import EffectiveRank, Updates
from strategies.parts.layout import Layout
from strategies.shared.linalg import effective_rank, unfold

NODES = 2
SHAPES = {"one": (8, 4, 3, 3), "two": (8, 8, 3, 3), "three": (6, 8, 3, 3), "dense": (3, 6)}


def test_the_third_is_not_the_first() -> None:
    draws = torch.Generator().manual_seed(0)
    rows = []
    for node in range(NODES):
        parts = []
        for number, shape in enumerate(SHAPES.values()):
            rank = 1 + (2 * node + number) % 4
            low = torch.randn(shape[0], rank, generator=draws) @ torch.randn(
                rank, int(np.prod(shape[1:])), generator=draws
            )
            parts.append((low + 0.01 * torch.randn(low.shape, generator=draws)).flatten())
        rows.append(torch.cat(parts).double())
    layout = Layout.of(record({name: np.zeros(shape) for name, shape in SHAPES.items()}))
    start = torch.zeros(layout.num_parameters, dtype=torch.float64)
    deltas = start - torch.stack(rows)
    updates = Updates(
        deltas, torch.zeros(NODES, 0), torch.ones(NODES).double(), tuple(range(NODES)), layout, start
    )
    alpha, _ = EffectiveRank()(updates, {})
    expected = []
    for layer in layout.layers[:3]:
        weights = [row[layer.columns].view(layer.shape) for row in rows]
        ranks = [sum(effective_rank(unfold(w, mode)) for mode in ("in", "out")) / 2 for w in weights]
        expected.append([max(1e-3, each) / sum(max(1e-3, r) for r in ranks) for each in ranks])
    assert len({round(first, 6) for first, _ in expected}) == 3
    torch.testing.assert_close(alpha.T[:3], torch.tensor(expected, dtype=torch.float64))
    assert torch.equal(alpha[:, 3], alpha[:, 2])
