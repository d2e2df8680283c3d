"""A round of federated training of every model that its time allows, on noise with a pattern or texts."""

from pathlib import Path

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf

from baselines.datasets import Dataset
from baselines.experiment import experiment
from baselines.experiment.overrides import CONF
from clients import Classification, LeastSquares, NextToken, Normalize
from helpers.runs import curve, played

TEXTS = ("char_lstm", "causal_transformer")
OTHERWISE = ("transformer", "lora", "huggingface")  # test_transformer.py and test_pretrained.py
SHAPES = {
    **dict.fromkeys(TEXTS, (12,)),
    "linear": (20,),
    "resnet18": (3, 32, 32),
    "resnet18_gn": (3, 32, 32),
}


OPTIONS = sorted({path.stem for path in (CONF / "model").glob("*.yaml")} - {*OTHERWISE})


def pattern(shape: tuple[int, ...], rows: int) -> Dataset:
    """Return images that a label's own pattern stands out of, or a linear problem."""
    rng = np.random.default_rng(0)
    if len(shape) == 1:
        x = torch.from_numpy(rng.standard_normal((rows, *shape)))
        y = x @ torch.ones(shape[0], 1, dtype=torch.float64)
        return Dataset(x, y, x, y, LeastSquares(1))
    labels = torch.arange(rows) % 4
    patterns = rng.integers(0, 2, (4, *shape)) * 120
    noisy = patterns[labels.numpy()] + rng.integers(0, 130, (rows, *shape))
    inputs = torch.from_numpy(noisy.astype(np.uint8))
    normalize = Normalize((0.5,) * shape[0], (0.25,) * shape[0])
    return Dataset(inputs, labels, inputs, labels, Classification(), normalize)


def alphabet(length: int, rows: int) -> Dataset:
    """Return texts of four characters in turn, each from a place of its own."""
    places = torch.arange(rows)[:, None] + torch.arange(length + 1)
    texts = places % 4
    return Dataset(texts[:, :-1], texts[:, 1:], texts[:, :-1], texts[:, 1:], NextToken())


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIONS)
def test_a_round_of_training(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shape = SHAPES.get(name, (1, 28, 28))
    rows = 16 if "resnet" in name else 64
    data = alphabet(*shape, rows) if name in TEXTS else pattern(shape, rows)

    def dataset(yaml: str) -> Dataset:
        assert tuple(OmegaConf.create(yaml).shape) == shape
        return data

    monkeypatch.setattr("baselines.experiment.data.load_dataset", dataset)
    experiment.load.cache_clear()
    shaped = str(list(shape)).replace(" ", "")
    linear = "+dataset.load.dtype=float64" if name == "linear" else ""
    overrides = (
        f"model={name} dataset.shape={shaped} num_nodes=2 partitioner=iid rounds=1 client=sgd "
        f"client.optimizer.lr=0.01 client.batch_size=8 {linear}"
    )
    actual = played(overrides.strip(), tmp_path)
    assert curve(actual, "train", "failed") == [0]
    losses = curve(actual, "test", "loss")
    assert all(np.isfinite(losses))
    assert losses[1] != losses[0]
