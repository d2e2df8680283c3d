"""Fewer bits, another layout in memory, more threads: each beside a plain loop that does the same."""

import pytest
import torch

from helpers.agreement.tolerance import ROUNDING, Tolerance, hold
from helpers.agreement.ways import BATCHED, BOTH, EAGER, WAYS, Way, compare, ours, plainly

LENET = "model=lenet dataset.shape=[1,28,28] dataset.load.size=15 num_nodes=2 client.batch_size=4"
MLP = "model=mlp model.hidden=8"
# A product in bfloat16 keeps 8 bits. Batched, its sums are in another order and the bias is added after
# rounding, so that results round to the number beside, and where pixels become equal another one is the
# greatest of a pool. Measured: plain loops in bfloat16 and in float32 are 0.2 to 5 % of the way apart, and
# batched as far from plain. Allowed is twice that, of the whole model's way; single entries may be further.
BFLOAT16 = Tolerance(of_values=0.01, of_movement=0.1, of_metrics=0.05, whole=True)


@pytest.mark.exhaustive
@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("model", [LENET, MLP, "model=twins", f"{MLP} client.max_grad_norm=0.5"])
def test_bfloat16(model: str, way: Way) -> None:
    compare(f"{model} autocast=bfloat16", way, batched=BFLOAT16)


@pytest.mark.exhaustive
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_channels_last(way: Way) -> None:
    compare(f"{LENET} channels_last=true", way)


def test_channels_last_in_bfloat16() -> None:
    compare(f"{LENET} channels_last=true autocast=bfloat16")


def test_channels_last_is_channels_first_to_rounding() -> None:
    """Another algorithm sums a convolution in another order."""
    hold(ours(f"{LENET} channels_last=true"), plainly(LENET), ROUNDING)


@pytest.mark.exhaustive
@pytest.mark.parametrize("way", [EAGER, BOTH], ids=str)
def test_two_threads(way: Way) -> None:
    """To the bit beside a plain loop of as many threads; to rounding beside one thread."""
    setting = f"{LENET} dataset.load.size=40 client.batch_size=16"
    compare(f"{setting} threads=2", way)
    hold(ours(f"{setting} threads=2", way), plainly(setting), ROUNDING)
    assert torch.get_num_threads() == 1


@pytest.mark.exhaustive
@pytest.mark.parametrize("way", [BATCHED, BOTH], ids=str)
def test_bfloat16_is_not_float32(way: Way) -> None:
    """Else the comparison above would hold float32 beside float32."""
    actual, other = ours(f"{MLP} autocast=bfloat16", way), plainly(MLP)
    with pytest.raises(AssertionError, match="off"):
        hold(actual, other, ROUNDING)
