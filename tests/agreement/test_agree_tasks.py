"""Every task, and data that are changed on their way: normalised, or augmented."""

import pytest

from helpers.agreement.ways import BATCHED, RECORDED, WAYS, Way, compare

REGRESSION = (
    "dataset=synthetic num_nodes=3 dataset.load.num_nodes=3 dataset.load.dimension=20 dataset.load.rows=5"
)
TASKS = {
    "least squares": f"{REGRESSION} client.local_steps=4 client.optimizer.lr=0.2",
    "least squares, in batches": f"{REGRESSION} client=sgd client.batch_size=2 dataset.load.dtype=float32",
    "a user's own": "dataset=smoothed model=mlp client.max_grad_norm=1",
}
PLAY = "dataset=speech num_nodes=3 partitioner.merge=true client.optimizer.lr=1"
SPEECH = f"{PLAY} model.hidden=8"


@pytest.mark.exhaustive
@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("task", TASKS)
def test_every_task(task: str, way: Way) -> None:
    compare(TASKS[task], way)


@pytest.mark.exhaustive
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_next_characters(way: Way) -> None:
    """A recurrent layer is taken step by step, and its nodes one by one."""
    compare(f"{SPEECH} client.batch_size=32", way, batches=False)


@pytest.mark.exhaustive
@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize(
    "setting", ["dataset=tokens", f"{PLAY} model=causal_transformer client.batch_size=32"]
)
def test_transformers(setting: str, way: Way) -> None:
    compare(f"{setting} model.width=8 model.heads=2 model.layers=1", way)


@pytest.mark.exhaustive
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_adapters(way: Way) -> None:
    pytest.importorskip("peft", reason="peft is not installed: pip install -e '.[lora]'")
    compare("dataset=tokens model=lora model.base.width=8 model.base.heads=2 model.r=2", way)


@pytest.mark.exhaustive
@pytest.mark.parametrize("way", [RECORDED, BATCHED], ids=str)
def test_real_digits_in_unequal_shares(way: Way) -> None:
    compare("dataset=digits partitioner=dirichlet model=softmax client.batch_size=32", way)


@pytest.mark.exhaustive
@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("batch", ["8", "null"])
def test_augmentation(batch: str, way: Way) -> None:
    """Crop, flip and cutout; drawn one after another, they are not batched."""
    compare(
        f"dataset=augmented model=mlp client.local_epochs=2 client.batch_size={batch}", way, batches=False
    )
