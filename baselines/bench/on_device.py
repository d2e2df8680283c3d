"""The workloads for an accelerator: ``python -m baselines.bench --device cuda``.

Pictures are noise, so that no data set is needed: a step takes as long as on real ones. Goals in seconds
are those for one H100.
"""

from dataclasses import dataclass

from . import resnet
from .device_round import Beside, DeviceRound
from .device_step import DeviceStep
from .workload import Workload

MNIST = (1, 28)  # channels, pixels of a side
CIFAR = (3, 32)
DETERMINISTIC = {"deterministic": "deterministic=true", "not deterministic": "deterministic=false"}


@dataclass(frozen=True)
class Sizes:
    """How much work there is.

    Parameters
    ----------
    many, few : nodes
    examples : of all nodes together, as many as MNIST has
    steps : of 50 pictures, that a node takes through the deep model
    rounds : of a measurement; the first is not counted
    lenet, deep : the models with convolutions
    """

    many: int = 100
    few: int = 10
    examples: int = 60_000
    steps: int = 20
    rounds: int = 6
    lenet: str = "lenet"
    deep: str = "resnet18_gn"


SMALL = Sizes(many=5, few=2, examples=400, steps=1, rounds=2, lenet="softmax", deep="lenet")


def workloads(device: str, sizes: Sizes) -> tuple[Workload, ...]:
    """Return them for a device; ``SMALL`` takes seconds on a CPU, to see that they work."""
    many = _setting(MNIST, sizes.examples, sizes.many, 32, device)
    lenet = f"{_setting(MNIST, sizes.examples, sizes.few, 32, device)} model={sizes.lenet}"
    deep = _setting(CIFAR, sizes.few * sizes.steps * 50, sizes.few, 50, device)
    step = f"model={sizes.deep} model.input_shape=[3,32,32] model.num_classes=10"
    return (
        DeviceRound("softmax", f"{many} model=softmax", True, 2 * sizes.rounds, at_most=0.015),
        DeviceRound("mlp30", f"{many} model=mlp30", True, 2 * sizes.rounds, at_most=0.015),
        DeviceRound("lenet", lenet, True, sizes.rounds, beside=1.15),
        DeviceRound("resnet", f"{deep} model={sizes.deep}", False, sizes.rounds, beside=1.15),
        DeviceStep("server-step", step, device, 0.002, sizes.few),
        Beside("deterministic", lenet, 1.5, sizes.rounds, DETERMINISTIC),
    )


def _setting(shape: tuple[int, int], examples: int, nodes: int, batch: int, device: str) -> str:
    return f"{resnet.pictures(*shape, examples, nodes)} client.batch_size={batch} device={device}"
