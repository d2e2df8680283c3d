"""Steps that differ from layer to layer, and the extrapolated one where weights do."""

import numpy as np
import pytest
import torch
from flwr.app import RecordDict
from torch import Tensor

from helpers.federation import Federation, answer, model_in, play, record, sent_model
from helpers.quadratics import reached
from helpers.updates import updates
from strategies import Extrapolated, ExtrapolatedByLayer, FedAvg, FedExP, StepSize, Updates


def test_each_layers_norms_count_with_its_own_weights() -> None:
    """Squared norms 5 and 61 in layer a, 9 and 49 in b; D = (4, 5, 3), whose squared norm is 50."""
    given = updates((1, 2, 3), (5, 6, 7))
    weights = torch.tensor([[0.25, 0.0, 1.0], [0.75, 1.0, 0.0]], dtype=torch.float64)  # a, the buffer, b
    eta = Extrapolated(0.5, clamp=False)(1, given, weights, given.mean(weights))
    assert eta == pytest.approx((0.25 * 5 + 0.75 * 61 + 9) / (2 * 50.5), rel=1e-12)


def test_by_layer_each_array_has_its_own_step() -> None:
    """D = (3, 4 | 5), whose squared norms are 25 and 25; those of the nodes' are 5, 61 and 9, 49."""
    given = updates((1, 2, 3), (5, 6, 7))
    weights = torch.tensor([0.5, 0.5], dtype=torch.float64)
    eta = ExtrapolatedByLayer(0.5, clamp=False)(1, given, weights, given.mean(weights))
    assert eta.tolist() == pytest.approx([33 / (2 * 25.5), 29 / (2 * 25.5)], rel=1e-12)
    clamped = ExtrapolatedByLayer(30.0)(1, given, weights, given.mean(weights))
    assert clamped.tolist() == [1, 1]


def test_by_layer_weights_count_in_their_own_layers() -> None:
    """As for the whole model: a has weights (1/4, 3/4), b (1, 0), and D = (4, 5 | 3)."""
    given = updates((1, 2, 3), (5, 6, 7))
    weights = torch.tensor([[0.25, 0.0, 1.0], [0.75, 1.0, 0.0]], dtype=torch.float64)
    eta = ExtrapolatedByLayer(0.5, clamp=False)(1, given, weights, given.mean(weights))
    assert eta.tolist() == pytest.approx([(0.25 * 5 + 0.75 * 61) / (2 * 41.5), 9 / (2 * 9.5)], rel=1e-12)


def test_a_model_of_one_array_has_fedexps_step() -> None:
    def stepped(step_size: StepSize) -> np.ndarray:
        return reached(FedExP(step_size=step_size), 5)

    assert stepped(ExtrapolatedByLayer()).tolist() == stepped(Extrapolated()).tolist()


class Halved(StepSize):
    """Half a step, one array after the other, in turn."""

    def __call__(self, server_round: int, updates: Updates, weights: Tensor, mean: Tensor) -> Tensor:
        etas = torch.zeros(len(updates.layout.parameters))
        etas[server_round % len(etas)] = 0.5 * float(updates.start.norm())
        return etas


def test_a_step_size_of_ones_own_sees_the_model_and_moves_a_layer_alone() -> None:
    model = {"a": np.array([3.0, 4.0]), "mean": np.array([1.0]), "b": np.array([12.0])}

    def moved(node: int, content: RecordDict) -> RecordDict:
        return answer({name: values + 1 for name, values in sent_model(content).items()})

    strategy = FedAvg(step_size=Halved(), buffer_names=("mean",))
    (first, metrics), (second, _) = play(strategy, Federation(moved, 2), record(model), (1, 2))
    assert {k: v.tolist() for k, v in model_in(first).items()} == {"a": [3, 4], "mean": [2], "b": [18.5]}
    length = float(np.sqrt(25 + 18.5**2))
    assert model_in(second)["a"].tolist() == pytest.approx([3 + length / 2, 4 + length / 2])
    assert model_in(second)["b"].tolist() == [18.5]
    assert (metrics["step-size-a"], metrics["step-size-b"]) == (0, 6.5)
