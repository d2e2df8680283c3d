"""Random updates of several shapes, and what our strategies make of them.

The updates hold what is awkward: coordinates that no node moves, coordinates on which some nodes stand
still, sizes from 1e-4 to 10. All is float64 unless a test says otherwise.
"""

from collections.abc import Callable

import numpy as np
import torch
from flwr.app import RecordDict
from torch import Tensor

from helpers.federation import Federation, Model, answer, model_in, play, record, round_of, sent_model
from strategies.parts.layout import CPU_BLOCK_COLUMNS, Layout
from strategies.parts.updates import Updates

SHAPES: dict[str, dict[str, tuple[int, ...]]] = {
    "number": {"w": ()},
    "vector": {"w": (17,)},
    "layers": {"conv": (4, 3, 3, 3), "bias": (4,), "scale": (), "head": (5, 12)},
    "blocks": {
        "w": (CPU_BLOCK_COLUMNS + 5,),
        "b": (CPU_BLOCK_COLUMNS // 2, 2),
    },  # longer than what the server works on at once
}
NUM_EXAMPLES = (7, 14, 1, 28, 3)


def draws(shapes: str, nodes: int, rounds: int, seed: int = 0, dtype: str = "float64") -> list[list[Model]]:
    """Return each round's pseudo-gradients Delta_k, a model for each node."""
    random = np.random.default_rng([seed, nodes, rounds])
    return [
        [
            {name: _awkward(random, shape).astype(dtype) for name, shape in SHAPES[shapes].items()}
            for _ in range(nodes)
        ]
        for _ in range(rounds)
    ]


def _awkward(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    values = np.asarray(random.normal(size=shape) * 10.0 ** random.uniform(-4, 1, size=shape))
    values[random.random(shape) < 0.1] = 0
    values.reshape(-1)[1:2] = 0  # never moved
    return values


def start(shapes: str, seed: int = 1) -> Model:
    random = np.random.default_rng(seed)
    return {name: np.asarray(random.normal(size=shape)) for name, shape in SHAPES[shapes].items()}


def flat(model: Model) -> Tensor:
    return torch.from_numpy(np.concatenate([np.asarray(values).reshape(-1) for values in model.values()]))


def updates_of(deltas: list[Model]) -> Updates:
    """Return a round's updates as the parts see them."""
    return Updates(
        deltas=torch.stack([flat(delta) for delta in deltas]),
        buffers=torch.zeros(len(deltas), 0, dtype=torch.float64),
        num_examples=torch.tensor(NUM_EXAMPLES[: len(deltas)], dtype=torch.float64),
        partition_ids=tuple(range(len(deltas))),
        layout=Layout.of(record(deltas[0])),
        start=torch.zeros_like(flat(deltas[0])),
    )


def mean(deltas: list[Model]) -> Model:
    """Return the mean weighted by examples, in plain NumPy."""
    sizes = NUM_EXAMPLES[: len(deltas)]
    return {
        name: np.asarray(
            sum(n * delta[name] for n, delta in zip(sizes, deltas, strict=True)) / np.float64(sum(sizes))
        )
        for name in deltas[0]
    }


def node_of(rounds: list[list[Model]]) -> Callable[[int, RecordDict], RecordDict]:
    """Return a node that moves by the round's update: it answers w[t] - Delta_k."""

    def node(partition_id: int, content: RecordDict) -> RecordDict:
        delta = rounds[round_of(content) - 1][partition_id]
        moved = {name: np.asarray(w - delta[name]) for name, w in sent_model(content).items()}
        return answer(moved, NUM_EXAMPLES[partition_id])

    return node


def models(strategy, first: Model, rounds: list[list[Model]]) -> list[Model]:  # type: ignore[no-untyped-def]
    """Return the model after each round of ``strategy``, ours or Flower's."""
    grid = Federation(node_of(rounds), len(rounds[0]))
    history = play(strategy, grid, record(first), range(1, len(rounds) + 1))
    return [model_in(arrays) for arrays, _ in history]


def close(actual: object, expected: object, rtol: float, atol: float = 0.0) -> None:
    """Hold two vectors to a tolerance; print how far they are apart, by the larger of the value and 1."""
    one, other = np.asarray(actual, dtype=float), np.asarray(expected, dtype=float)
    scale = np.maximum(np.abs(other), 1)
    print(f"largest deviation {np.max(np.abs(one - other) / scale):.1e}")
    np.testing.assert_allclose(one, other, rtol=rtol, atol=atol)


def all_close(actual: list[Model], expected: list[Model], rtol: float, atol: float = 0.0) -> None:
    """Hold one model for each round to those of another program."""
    assert [list(model) for model in actual] == [list(model) for model in expected]
    for one, other in zip(actual, expected, strict=True):
        assert {name: w.shape for name, w in one.items()} == {name: w.shape for name, w in other.items()}
    close(torch.stack([flat(w) for w in actual]), torch.stack([flat(w) for w in expected]), rtol, atol)
