"""Evaluation in batches, and what a batch is."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torchvision import transforms

from clients import Classification, Examples, Normalize, evaluation
from clients.evaluation import evaluate


def examples(size: int, index: torch.Tensor | None = None) -> Examples:
    random = torch.Generator().manual_seed(1)
    inputs = torch.randn(size, 5, generator=random)
    return Examples(
        inputs, torch.randint(4, (size,), generator=random), torch.arange(size) if index is None else index
    )


@pytest.mark.parametrize("batch_size", [1, 7, 1000, 5000])
def test_equals_the_computation_on_the_whole_set(batch_size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "BATCH_SIZE", batch_size)
    model, data = nn.Linear(5, 4), examples(2345)
    found = evaluate(model, data, Classification())
    outputs = model(data.inputs).detach()
    assert found["accuracy"] == float((outputs.argmax(1) == data.targets).sum()) / 2345
    assert found["loss"] == pytest.approx(float(cross_entropy(outputs, data.targets)), rel=1e-5)


def test_takes_the_rows_of_the_index_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "BATCH_SIZE", 3)
    model, index = nn.Linear(5, 4), torch.tensor([3, 1, 4, 15, 9, 2, 6])
    data = examples(20, index)
    found = evaluate(model, data, Classification())
    expected = cross_entropy(model(data.inputs[index]).detach(), data.targets[index])
    assert len(data) == 7
    assert found["loss"] == pytest.approx(float(expected), rel=1e-6)


def test_changes_nothing_and_uses_running_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model, data = nn.Sequential(nn.BatchNorm1d(5), nn.Dropout(0.5), nn.Linear(5, 4)), examples(50)
    model.train()
    before = {name: values.clone() for name, values in model.state_dict().items()}
    first = evaluate(model, data, Classification())
    monkeypatch.setattr(evaluation, "BATCH_SIZE", 7)
    second = evaluate(model, data, Classification())
    assert first["accuracy"] == second["accuracy"]
    assert first["loss"] == pytest.approx(second["loss"], rel=1e-6)
    assert all(torch.equal(values, before[name]) for name, values in model.state_dict().items())


def test_normalize_equals_torchvisions() -> None:
    mean, std = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
    images = torch.randint(256, (20, 3, 9, 9), dtype=torch.uint8)
    before = images.clone()
    theirs = transforms.Normalize(mean, std)(images.float() / 255)
    torch.testing.assert_close(Normalize(mean, std)(images), theirs, rtol=1e-5, atol=1e-6)
    assert torch.equal(images, before)


def test_normalize_of_one_channel_by_hand() -> None:
    batch = torch.tensor([[[[0, 16], [8, 4]]]], dtype=torch.uint8)
    found = Normalize((0.5,), (0.25,), scale=16)(batch)
    torch.testing.assert_close(found, torch.tensor([[[[-2.0, 2.0], [0.0, -1.0]]]]))


def test_a_batch_is_transformed_and_the_data_set_is_not() -> None:
    data = examples(10)
    doubled = Examples(data.inputs, data.targets, torch.tensor([8, 2, 5]), lambda x: x * 2)
    inputs, targets = doubled.batch(torch.tensor([2, 0]), torch.device("cpu"))
    assert torch.equal(inputs, data.inputs[[5, 8]] * 2)
    assert torch.equal(targets, data.targets[[5, 8]])
    whole, _ = doubled.batch(slice(None), torch.device("cpu"))
    assert torch.equal(whole, data.inputs[[8, 2, 5]] * 2)
