"""Vectors of a round that are of no more use are written over; those that somebody keeps are not."""

from dataclasses import dataclass

import numpy as np
import pytest
from flwr.app import RecordDict
from torch import Tensor

from helpers.federation import Federation, answer, model_in, play, record, sent_model
from strategies import AgreementMask, FedAvg, ServerOptimizer

MODEL = record({"w": np.zeros(3)})


def node(partition_id: int, content: RecordDict) -> RecordDict:
    """Move by (1, 1, 1) or (3, 3, -1)."""
    step = np.array([1.0, 1, 1]) if partition_id == 0 else np.array([3.0, 3, -1])
    return answer({"w": sent_model(content)["w"] + step})


@dataclass(frozen=True)
class WithTheLast(ServerOptimizer):
    """P(D) = D plus the mean of the round before, which it keeps without a copy."""

    def __call__(self, mean: Tensor, state: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        return mean + state["last"] if state else mean.clone(), {"last": mean}


@pytest.mark.parametrize("masked", [False, True])
def test_a_mean_that_the_optimizer_keeps(masked: bool) -> None:
    """D = -(2, 2, 0) in every round, so that w moves by 2, then by 4."""
    mask = {"mask": AgreementMask(0.5)} if masked else {}
    history = play(FedAvg(server_optimizer=WithTheLast(), **mask), Federation(node, 2), MODEL, range(1, 6))
    actual = [model_in(arrays)["w"].tolist() for arrays, _ in history]
    assert actual == [[w, w, 0] for w in (2, 6, 10, 14, 18)]


@pytest.mark.parametrize("last", [1, 2, 3])
def test_iterates_that_are_averaged(last: int) -> None:
    strategy = FedAvg(mask=AgreementMask(0.5), average_last=last)
    grid, model, iterates = Federation(node, 2), MODEL, [0.0]
    for server_round in range(1, 7):
        ((model, _),) = play(strategy, grid, model, (server_round,))
        iterates.append(2.0 * server_round)
        expected = float(np.mean(iterates[-last:]))
        (judged,) = strategy.models_to_evaluate(model).values()
        np.testing.assert_allclose(model_in(judged)["w"], [expected, expected, 0], rtol=1e-12)
