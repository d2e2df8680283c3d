"""What holds for every part, as a pure function."""

import numpy as np
import pytest
import torch
from torch import Tensor

from helpers.every_part import MASKS, NODES, OPTIMIZERS, STEP_SIZES, WEIGHTINGS, start
from helpers.federation import record
from strategies import (
    AgreementMask,
    Extrapolated,
    Mask,
    ServerOptimizer,
    StepSize,
    Uniform,
    Updates,
    Weighting,
)
from strategies.parts.layout import Layout
from strategies.shared import protocol


def updates(dtype: torch.dtype = torch.float32) -> Updates:
    layout = Layout.of(record(start(np.float32 if dtype == torch.float32 else np.float64)))
    random = torch.Generator().manual_seed(0)

    def rows(count: int, dtype: torch.dtype) -> Tensor:
        return torch.randn(NODES, count, generator=random, dtype=dtype)

    return Updates(
        deltas=rows(layout.num_parameters, dtype),
        buffers=rows(layout.num_buffers, torch.float64),
        num_examples=torch.arange(1.0, NODES + 1, dtype=torch.float64),
        partition_ids=tuple(range(NODES)),
        layout=layout,
        start=rows(layout.num_parameters, dtype)[0],
        metrics={
            name: torch.arange(1.0, NODES + 1, dtype=torch.float64)
            for name in (protocol.GRADIENT_VARIANCE, protocol.START_LOSS)
        },
    )


def bits(*values: Tensor | dict[str, Tensor]) -> list[bytes]:
    tensors = [t for v in values for t in (v.values() if isinstance(v, dict) else [v])]
    return [t.numpy().tobytes() for t in tensors]


def bits_of(updates: Updates) -> list[bytes]:
    return bits(updates.deltas, updates.buffers, updates.num_examples, updates.start, updates.metrics)


@pytest.mark.parametrize("weighting", WEIGHTINGS.values(), ids=WEIGHTINGS)
def test_weights_sum_to_one_and_modify_nothing(weighting: Weighting) -> None:
    given = updates()
    before = bits_of(given)
    weights, state = weighting(given, {})
    assert weights.shape[0] == NODES
    assert (weights >= 0).all()
    torch.testing.assert_close(weights.sum(0), torch.ones_like(weights.sum(0)), rtol=1e-12, atol=0)
    state_before = bits(state)
    again, _ = weighting(given, state)
    twice, _ = weighting(given, state)
    assert bits(again) == bits(twice)
    assert bits(state) == state_before
    assert bits_of(given) == before


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_optimizers_keep_dtype_and_depend_on_their_inputs_alone(
    optimizer: ServerOptimizer, dtype: torch.dtype
) -> None:
    """They may overwrite what they are given; the same again gives the same again."""
    mean = updates(dtype).deltas[0]
    _, state = optimizer(mean.clone(), {})
    given = {name: value.clone() for name, value in state.items()}
    direction, renewed = optimizer(mean.clone(), state)
    assert (direction.shape, direction.dtype) == (mean.shape, dtype)
    again, again_renewed = optimizer(mean.clone(), given)
    assert bits(direction, renewed) == bits(again, again_renewed)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("mask", [m for m in MASKS.values() if not m.is_identity], ids=[*MASKS][1:])
def test_masks_are_factors_and_modify_nothing(mask: Mask, dtype: torch.dtype) -> None:
    given = updates(dtype)
    before = bits_of(given)
    weights, _ = Uniform()(given, {})
    mean, factors = mask.mean_and_mask(given, weights)
    assert factors is not None
    values = factors.values
    assert (values.shape, values.dtype) == (given.start.shape, dtype)
    assert ((values >= 0) & (values <= 1)).all()
    assert factors.masked_share == int((values < 1).sum()) / len(values)
    assert bits(mean) == bits(given.mean(weights))
    assert bits_of(given) == before


@pytest.mark.parametrize("layerwise", [False, True], ids=["per-node", "per-layer"])
def test_one_pass_in_blocks_is_the_mean_and_the_mask_of_the_whole(
    layerwise: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = updates()
    weights = torch.rand(NODES, len(given.layout.layers)) if layerwise else torch.rand(NODES)
    agreement = torch.sign(given.deltas).sum(0).abs() / NODES
    for size in (1, 3, 1000):
        monkeypatch.setattr("strategies.parts.layout.CPU_BLOCK_COLUMNS", size)
        mean, factors = AgreementMask(0.5).mean_and_mask(given, weights)
        torch.testing.assert_close(mean, given.mean(weights))
        assert factors is not None
        torch.testing.assert_close(factors.values, agreement.masked_fill(agreement >= 0.5, 1.0))


@pytest.mark.parametrize("step_size", STEP_SIZES.values(), ids=STEP_SIZES)
def test_step_sizes_are_positive_and_modify_nothing(step_size: StepSize) -> None:
    given = updates()
    weights, _ = Uniform()(given, {})
    mean = given.mean(weights)
    before = bits_of(given), bits(weights, mean)
    assert (torch.as_tensor(step_size(1, given, weights, mean)) >= 1).all()
    assert (bits_of(given), bits(weights, mean)) == before


@pytest.mark.parametrize("layerwise", [False, True], ids=["per-node", "per-layer"])
def test_a_mean_is_what_numpy_computes(layerwise: bool) -> None:
    given = updates(torch.float64)
    alphas = torch.rand(NODES, len(given.layout.layers), dtype=torch.float64)
    weights = alphas if layerwise else alphas[:, 0]
    for column, layer in enumerate(given.layout.layers):
        rows = given.buffers if layer.is_buffer else given.deltas
        mean = given.mean_buffers(weights) if layer.is_buffer else given.mean(weights)
        alpha = alphas[:, column if layerwise else 0].numpy()
        expected = np.einsum("k,kp->p", alpha, rows[:, layer.columns].numpy())
        np.testing.assert_allclose(mean[layer.columns].numpy(), expected, rtol=1e-12)


def test_an_epsilon_that_has_grown_beyond_all_numbers_is_fedavg() -> None:
    given = updates()
    weights = Uniform()(given, {})[0]
    mean = given.mean(weights)
    far = Extrapolated(1e-3, epsilon_decay=2.0)(5000, given, weights, mean)
    assert far == 1.0
    none = Extrapolated(0.0)(1, given, weights, mean)
    assert none > 1.0
    assert Extrapolated(0.0, epsilon_decay=2.0)(5000, given, weights, mean) == none
