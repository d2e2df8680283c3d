"""Every way on an accelerator, beside the plain loop on the same one."""

import pytest
import torch

from helpers.agreement.settings import CLIENTS, DRIVEN, METHODS
from helpers.agreement.tolerance import ROUNDING, Tolerance, hold
from helpers.agreement.ways import CAPTURED, CAPTURED_BATCH, WAYS, Way, compare, ours, plainly

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available(), reason="no accelerator: torch.cuda.is_available() is false"
    ),
]
LENET = "model=lenet dataset.shape=[1,28,28] dataset.load.size=15 num_nodes=2 client.batch_size=4"
MODELS = ["model=softmax", "model=mlp model.hidden=8", "model=twins", LENET]
# The libraries choose their algorithms at run time, and add up in an order that differs from call to call;
# convolutions are in TF32, which keeps 10 bits: 2^-11 = 5e-4 of each product.
CONVOLUTIONS = Tolerance(of_values=1e-3, of_movement=0.02, of_metrics=0.01, whole=True)
NEAR = Tolerance(
    of_values=1e-5, of_movement=1e-3, of_metrics=1e-4
)  # variates are computed in another order
BFLOAT16 = Tolerance(of_values=0.01, of_movement=0.1, of_metrics=0.05, whole=True)  # as on the CPU


@pytest.mark.exhaustive
@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("model", MODELS)
def test_every_way(model: str, way: Way) -> None:
    near = CONVOLUTIONS if model == LENET else ROUNDING
    compare(f"{model} device=cuda", way, one_by_one=near, batched=near)


@pytest.mark.exhaustive
@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("model", MODELS)
def test_bfloat16(model: str, way: Way) -> None:
    compare(f"{model} device=cuda autocast=bfloat16", way, one_by_one=BFLOAT16, batched=BFLOAT16)


@pytest.mark.exhaustive
@pytest.mark.parametrize("model", ["counting", "layer_drop", "own_forward"])
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_users_model(model: str, way: Way) -> None:
    compare(f"model={model} device=cuda client.local_epochs=3", way, batches=None, one_by_one=ROUNDING)


@pytest.mark.exhaustive
@pytest.mark.parametrize("way", [CAPTURED, CAPTURED_BATCH], ids=str)
@pytest.mark.parametrize("case", {**CLIENTS, **DRIVEN})
def test_what_comes_after_the_gradient(case: str, way: Way) -> None:
    """The optimiser, clipping and decay, inside of a captured step and outside of it."""
    overrides, batches = {**CLIENTS, **DRIVEN}[case]
    near = CONVOLUTIONS if "model=lenet" in overrides else ROUNDING
    compare(f"{overrides} device=cuda", way, batches=batches, one_by_one=near, batched=near, rounds=3)


@pytest.mark.exhaustive
@pytest.mark.parametrize("way", [CAPTURED, CAPTURED_BATCH], ids=str)
@pytest.mark.parametrize("method", METHODS)
def test_every_method(method: str, way: Way) -> None:
    overrides, kind, batches, _ = METHODS[method]
    compare(f"{overrides} device=cuda", way, kind, batches=batches, one_by_one=NEAR, batched=NEAR, rounds=3)


def test_the_accelerators_numbers_are_the_cpus() -> None:
    hold(ours("model=mlp device=cuda"), plainly("model=mlp"), ROUNDING)
