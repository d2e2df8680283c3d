"""Our server optimizers beside declearn's modules, on the same mean pseudo-gradients.

Compared: the direction P(D), round by round, of MomentumModule with Momentum; of AdaGradModule with
Adagrad (beta1 = 0, the only one it has); of AdamModule and YogiModule with Adam and Yogi, whose
``bias_correction`` is on, as declearn always corrects; of RMSPropModule with Adam at beta1 = 0 without
correction. All add epsilon to the root. Tolerance: 1e-14, some fifty roundings of a step of size 1, in
float64 (both round after each operation, in another order: m + (1 - beta)(D - m) here, beta m + (1 -
beta) D there); 1e-5 in float32.

Where the definitions differ:
* Without ``bias_correction`` (the default, Algorithm 2 of Reddi et al.) ours is declearn's Adam or Yogi
  times (1 - beta1^t) / sqrt(1 - beta2^t), with declearn's epsilon in round t divided by sqrt(1 -
  beta2^t).
* epsilon = 0 and a coordinate that never moved: ours stands still, declearn's becomes NaN.
"""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from helpers.peers.random_updates import SHAPES, close, draws, flat, mean
from strategies import Adagrad, Adam, Momentum, Yogi
from strategies.parts.server_optimizer import ServerOptimizer

pytest.importorskip("declearn", reason="declearn is not installed: scripts/test-peers")
from declearn.model.torch import TorchVector  # type: ignore[import-not-found]
from declearn.optimizer.modules import (  # type: ignore[import-not-found]
    AdaGradModule,
    AdamModule,
    MomentumModule,
    OptiModule,
    RMSPropModule,
    YogiModule,
)

ROUNDS, BETA1, BETA2 = 8, 0.85, 0.97


def means(shapes: str, dtype: str = "float64") -> list[Tensor]:
    return [flat(mean(deltas)).to(getattr(torch, dtype)) for deltas in draws(shapes, 4, ROUNDS, 2, dtype)]


def ours(optimizer: ServerOptimizer, gradients: list[Tensor]) -> np.ndarray:
    directions, state = [], {}
    for gradient in gradients:
        direction, state = optimizer(gradient.clone(), state)
        directions.append(direction.numpy().copy())  # the next round writes over it
    return np.stack(directions)


def theirs(module: OptiModule, gradients: list[Tensor]) -> np.ndarray:
    return np.stack([module.run(TorchVector({"w": g.clone()})).coefs["w"].numpy() for g in gradients])


def pairs(epsilon: float) -> dict[str, tuple[ServerOptimizer, Callable[[], OptiModule]]]:
    both = {"beta1": BETA1, "beta2": BETA2, "epsilon": epsilon, "bias_correction": True}
    their = {"beta_1": BETA1, "beta_2": BETA2, "eps": epsilon}
    return {
        "momentum": (Momentum(BETA1), lambda: MomentumModule(BETA1)),
        "adagrad": (Adagrad(epsilon=epsilon), lambda: AdaGradModule(epsilon)),
        "adam": (Adam(**both), lambda: AdamModule(**their)),  # type: ignore[arg-type]
        "yogi": (Yogi(**both), lambda: YogiModule(**their)),  # type: ignore[arg-type]
        "rmsprop": (
            Adam(beta1=0.0, beta2=BETA2, epsilon=epsilon),
            lambda: RMSPropModule(BETA2, epsilon),
        ),
    }


@pytest.mark.parametrize("epsilon", [1e-7, 1e-3, 1.0])
@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("name", pairs(1.0))
def test_the_same_directions(name: str, shapes: str, epsilon: float) -> None:
    optimizer, module = pairs(epsilon)[name]
    gradients = means(shapes)
    close(ours(optimizer, gradients), theirs(module(), gradients), rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("name", pairs(1.0))
def test_the_same_directions_in_float32(name: str) -> None:
    optimizer, module = pairs(1e-3)[name]
    gradients = means("blocks", "float32")
    close(ours(optimizer, gradients), theirs(module(), gradients), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("cls", "module"), [(Adam, AdamModule), (Yogi, YogiModule)])
def test_without_bias_correction_ours_is_theirs_rescaled(cls: type[Adam], module: type[AdamModule]) -> None:
    gradients, epsilon = means("layers"), 1e-3
    actual = ours(cls(beta1=BETA1, beta2=BETA2, epsilon=epsilon), gradients)
    peer = module(BETA1, BETA2)
    expected = []
    for t, gradient in enumerate(gradients, start=1):
        first, second = 1 - BETA1**t, np.sqrt(1 - BETA2**t)
        peer.eps = epsilon / second
        (direction,) = theirs(peer, [gradient])
        expected.append(direction * first / second)
    close(actual, np.stack(expected), rtol=1e-14, atol=1e-14)
    corrected = theirs(module(BETA1, BETA2, eps=epsilon), gradients)
    assert np.abs(actual - corrected).max() > 0.1  # it is another rule


@pytest.mark.parametrize("name", ["adagrad", "adam", "yogi", "rmsprop"])
def test_without_epsilon_what_never_moved_stands_still_here_alone(name: str) -> None:
    optimizer, module = pairs(0.0)[name]
    gradients = means("vector")
    still = torch.stack(gradients).eq(0).all(0).numpy()
    assert still.any()
    actual, expected = ours(optimizer, gradients), theirs(module(), gradients)
    assert (actual[:, still] == 0).all()
    assert np.isnan(expected[:, still]).all()
    close(actual[:, ~still], expected[:, ~still], rtol=1e-14, atol=1e-14)
