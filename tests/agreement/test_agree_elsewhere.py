"""Whole rounds on a pretended accelerator: nothing mixes with host memory, nothing is in float64 there.

Apple's accelerators have no float64. Batched and recorded steps see through a pretended tensor, so nodes
train one by one here, operation by operation; test_agree_gpu.py takes every way on a real one.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch

from baselines.experiment import experiment
from baselines.experiment import experiment as model_module
from helpers.agreement.settings import CLIENTS, DRIVEN, METHODS, MLP, PICTURES
from helpers.agreement.tolerance import TO_THE_BIT, hold, moved
from helpers.agreement.ways import full, ours
from helpers.elsewhere import DEVICE, Accelerator

CNN = f"model=we_cnn {PICTURES} client.local_epochs=2"
NOISE = "clip=1 privacy.noise_multiplier=1 privacy.noise_seed=1 weighting=uniform"
MORE = [
    f"{MLP} client.stragglers=0.5",
    f"{MLP} client=keep_trace",
    f"{MLP} compression=low_rank",
    f"{MLP} compression=random_mask",
    f"{MLP} compression=scaled_sign",
    f"{MLP} compression=sketch compression.rotate=true",
    f"{MLP} compression=top_k",
    f"{MLP} corrections=inexact",
    f"{MLP} corrections=moon",
    f"{MLP} num_nodes=5 aggregation=krum",
    f"{MLP} personal=per_fedavg",
    f"{MLP} privacy=central privacy.{NOISE}",
    f"{MLP} privacy=local privacy.{NOISE}",
    f"{MLP} private=fedper client.private=[output.*]",
    f"{MLP} strategy=afl",
    f"{MLP} strategy=fedams",
    f"{MLP} strategy=fedlamb step_size=extrapolated_by_layer",
    f"{MLP} strategy=codistillation validation_size=12 strategy.distillation.steps=3",
    f"{MLP} strategy=feddf validation_size=12 strategy.distillation.steps=3",
    f"{MLP} strategy=feddyn",
    f"{MLP} strategy=fedexp mask=agreement",
    f"{MLP} strategy=fednova client.optimizer.momentum=0.9",
    f"{MLP} strategy=oort nodes_per_round=2",
    f"{MLP} strategy=power_of_choice nodes_per_round=2",
    f"{MLP} strategy=power_of_choice strategy.asks=true nodes_per_round=2",
    f"{MLP} strategy=qfedavg",
    f"{MLP} strategy=selective validation_size=12 strategy.local_rounds=1",
    f"{MLP} strategy=weight_erosion",
    f"{CNN} strategy=feder",
    f"{CNN} weighting=stable_rank",
    "model=buffered",
    "model=dropping",
]
LISTED = [overrides for overrides, *_ in [*METHODS.values(), *CLIENTS.values(), *DRIVEN.values()]]
CASES = [*(overrides for overrides in LISTED if "model=double" not in overrides), *MORE]  # no float64 there
METADATA_KEY = SimpleNamespace(
    is_available=lambda: False,  # torch itself has no such device
    manual_seed=torch.manual_seed,
    mem_get_info=lambda _: (1 << 30, 1 << 30),
)


@contextmanager
def far_away() -> Iterator[None]:
    """Let everything that asks for the run's device have the pretended one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "get_device_module", lambda _: METADATA_KEY)
        for module in (experiment, model_module):
            patch.setattr(module, "device_of", lambda _: DEVICE)
        with Accelerator():
            yield


@pytest.mark.exhaustive
@pytest.mark.parametrize("overrides", CASES)
def test_rounds_elsewhere_have_the_cpus_bits(overrides: str) -> None:
    near = ours(overrides)
    with far_away():
        far = ours(overrides)
        assert next(experiment.load(full(overrides)).model().parameters()).device == DEVICE
    assert moved(near.rounds, near.start)
    hold(far, near.rounds, TO_THE_BIT)
