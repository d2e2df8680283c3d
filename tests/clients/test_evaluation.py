"""Evaluation in batches, and what a batch is."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torchvision import transforms

from clients import Classification, Examples, NextToken, Normalize, Task, evaluation
from clients.evaluation import evaluate, find_correct, predict_classes


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
    actual = evaluate(model, data, Classification())
    outputs = model(data.inputs).detach()
    assert actual["accuracy"] == float((outputs.argmax(1) == data.targets).sum()) / 2345
    assert actual["loss"] == pytest.approx(float(cross_entropy(outputs, data.targets)), rel=1e-5)


def test_takes_the_rows_of_the_index_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "BATCH_SIZE", 3)
    model, index = nn.Linear(5, 4), torch.tensor([3, 1, 4, 15, 9, 2, 6])
    data = examples(20, index)
    actual = evaluate(model, data, Classification())
    expected = cross_entropy(model(data.inputs[index]).detach(), data.targets[index])
    assert len(data) == 7
    assert actual["loss"] == pytest.approx(float(expected), rel=1e-6)


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
    actual = Normalize((0.5,), (0.25,), scale=16)(batch)
    torch.testing.assert_close(actual, torch.tensor([[[[-2.0, 2.0], [0.0, -1.0]]]]))


def test_a_batch_is_transformed_and_the_data_set_is_not() -> None:
    data = examples(10)
    doubled = Examples(data.inputs, data.targets, torch.tensor([8, 2, 5]), lambda x: x * 2)
    inputs, targets = doubled.batch(torch.tensor([2, 0]), torch.device("cpu"))
    assert torch.equal(inputs, data.inputs[[5, 8]] * 2)
    assert torch.equal(targets, data.targets[[5, 8]])
    whole, _ = doubled.batch(slice(None), torch.device("cpu"))
    assert torch.equal(whole, data.inputs[[8, 2, 5]] * 2)


class Raw(nn.Module):
    """Returns its inputs: the outputs that a test wants."""

    def __init__(self) -> None:
        super().__init__()
        self.unused = nn.Parameter(torch.zeros(1))

    def forward(self, outputs: Tensor) -> Tensor:
        return outputs


class Named(Raw):
    """Returns them in a dictionary, among other things."""

    def forward(self, outputs: Tensor) -> dict[str, object]:  # type: ignore[override]
        return {"outputs": [outputs], "layers": 3}


class Signs(Task):
    """A task of the user's own whose measure is a comparison, and which clears its loss of NaN."""

    def __call__(
        self, outputs: Tensor | dict[str, list[Tensor]], targets: Tensor, present: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        values = outputs["outputs"][0] if isinstance(outputs, dict) else outputs
        right = ((values[:, 0] > 0) == (targets > 0)).sum()
        return values.nan_to_num().sum(), {"loss": values.nan_to_num().sum(), "right": right}


def outputs_with(value: float, row: int = 1203) -> Examples:
    outputs, targets = torch.zeros(2345, 4), torch.zeros(2345, dtype=torch.int64)
    outputs[row, 2] = value
    return Examples(outputs, targets, torch.arange(2345))


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("task", [Classification(), Signs()], ids=["classes", "own"])
def test_one_row_without_an_output_leaves_no_measure(task: Task, value: float) -> None:
    """Argmax takes NaN for a class, a comparison for false: with all labels 0 that is accuracy 1."""
    actual = evaluate(Raw(), outputs_with(value), task)
    assert len(actual) == 2
    assert all(math.isnan(measure) for measure in actual.values())
    assert all(math.isfinite(measure) for measure in evaluate(Raw(), outputs_with(1.0), task).values())


def test_nor_where_outputs_are_among_others() -> None:
    assert math.isfinite(evaluate(Named(), outputs_with(1.0), Signs())["right"])
    assert all(map(math.isnan, evaluate(Named(), outputs_with(torch.nan), Signs()).values()))


def test_a_class_may_be_ruled_out() -> None:
    data = outputs_with(-torch.inf)
    assert evaluate(Raw(), data, Classification())["accuracy"] == 1
    assert find_correct(Raw(), data, range(3)).all()
    data.inputs[5] = -torch.inf  # all of them may not
    assert math.isnan(evaluate(Raw(), data, Classification())["accuracy"])
    assert find_correct(Raw(), data, range(3)).logical_not().nonzero().tolist() == [[5]]


def test_tokens_without_an_output_leave_no_measure() -> None:
    outputs = torch.zeros(3, 5, 4)
    outputs[1, 2] = -torch.inf
    data = Examples(outputs, torch.zeros(3, 5, dtype=torch.int64), torch.arange(3))
    assert all(map(math.isnan, evaluate(Raw(), data, NextToken()).values()))


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_a_row_without_an_output_is_of_no_class_and_not_right(value: float) -> None:
    data = outputs_with(value)
    labels, predicted = predict_classes(Raw(), data)
    assert (predicted != labels).nonzero().tolist() == [[1203]]
    assert predicted[1203] == evaluation.NO_CLASS
    assert find_correct(Raw(), data, range(3)).logical_not().nonzero().tolist() == [[1203]]


@pytest.mark.parametrize("gap", [None, 9])
def test_an_accelerator_is_asked_once_whether_outputs_lack(
    gap: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many batches there are: each answer would wait for it. The measures are those of a CPU."""
    monkeypatch.setattr(evaluation, "BATCH_SIZE", 4)
    outputs = torch.randn(40, 3, generator=torch.Generator().manual_seed(2))
    outputs[5, 1] = -torch.inf  # beside numbers: a class that is ruled out
    if gap is not None:
        outputs[gap] = torch.nan
    data = Examples(outputs, torch.arange(40) % 3, torch.arange(40))
    expected = evaluate(Raw(), data, Classification())
    right, labels = find_correct(Raw(), data, range(10)), predict_classes(Raw(), data)
    calls = list[str]()

    def noted(name: str) -> None:
        plain = getattr(Tensor, name)
        monkeypatch.setattr(Tensor, name, lambda *given: (calls.append(name), plain(*given))[1])

    for name in ("__bool__", "tolist", "item", "__float__", "cpu"):
        noted(name)
    monkeypatch.setattr(evaluation, "_is_readable_at_once", lambda _: False)
    actual = evaluate(Raw(), data, Classification())
    assert calls == ["tolist", "__float__", "__float__"]
    assert str(actual) == str(expected)
    assert math.isnan(actual["loss"]) is (gap is not None)
    calls.clear()
    assert torch.equal(find_correct(Raw(), data, range(10)), right)
    assert [torch.equal(*pair) for pair in zip(predict_classes(Raw(), data), labels, strict=True)] == [
        True,
        True,
    ]
    assert [name for name in calls if name != "__bool__"] == ["cpu"] * 3
