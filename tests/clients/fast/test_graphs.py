"""Captured steps, without a GPU: what stands in for a graph repeats its operations on the same memory."""

import logging
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor, nn

from clients import Classification, optimizer_step
from clients.fast import cuda_graphs
from clients.fast.gradient import CAPTURED, EAGER, RECORDED, Gradient, count_steps, steps_since
from clients.optimizer_step import GradientPipeline
from helpers.pretended_graph import pretended

Results = tuple[Sequence[Tensor], dict[str, Tensor]]


def doubled(parameters: Sequence[Tensor], inputs: Tensor) -> Results:
    return [2 * p for p in parameters], {"loss": inputs.sum()}


@pytest.fixture(autouse=True)
def _graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimizer_step, "can_capture", lambda _: True)
    monkeypatch.setattr(cuda_graphs, "capture_graph", pretended)


def test_each_call_computes_from_the_parameters_as_they_are_and_from_its_batch() -> None:
    parameters, batch = [torch.ones(2)], [torch.ones(3)]
    step = cuda_graphs.capture_step(doubled, parameters, batch)
    assert step is not None
    for factor in (3.0, 5.0):
        parameters[0].fill_(factor)
        gradients, sums = step(parameters, torch.full((3,), factor))
        assert gradients[0].tolist() == [2 * factor] * 2
        assert float(sums["loss"]) == 3 * factor
    assert parameters[0].tolist() == [5, 5]
    assert batch[0].tolist() == [1, 1, 1]


def test_parameters_elsewhere_in_memory_have_a_graph_of_their_own() -> None:
    graphs = cuda_graphs.GraphCache()
    for factor in (1.0, 3.0):
        parameters, batch = [torch.full((2,), factor)], [torch.ones(3)]
        step = graphs.find("a step", doubled, parameters, batch)
        assert step is not None
        gradients, _ = step(parameters, *batch)
        assert gradients[0].tolist() == [2 * factor] * 2


def test_a_capture_leaves_the_momentum_as_it_was() -> None:
    after = GradientPipeline(momentum=0.5, is_descent=True, buffers=[torch.full((2,), 8.0)])
    step = cuda_graphs.capture_step(doubled, [torch.ones(2)], [torch.ones(3)], after)
    assert step is not None
    assert after.buffers[0].tolist() == [8, 8]
    directions, _ = step([], torch.ones(3))
    assert directions[0].tolist() == [6, 6]  # 0.5 * 8 + 2


def test_metrics_outlive_the_next_call() -> None:
    step = cuda_graphs.capture_step(doubled, [torch.ones(2)], [torch.ones(3)])
    assert step is not None
    _, first = step([], torch.ones(3))
    step([], torch.zeros(3))
    assert float(first["loss"]) == 3


@pytest.mark.slow
def test_what_cannot_be_captured_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuses(run: Callable[[], Results]) -> tuple[Callable[[], None], Results]:
        raise RuntimeError("CUDA error: operation not permitted\nwhen stream is capturing")

    monkeypatch.setattr(cuda_graphs, "capture_graph", refuses)
    with caplog.at_level(logging.WARNING, "flwr.clients"):
        actual = ways(batches=[4] * 6)
    assert actual == {
        EAGER: cuda_graphs.EAGER_STEPS + 1,
        RECORDED: 5 - cuda_graphs.EAGER_STEPS,
        CAPTURED: 0,
    }
    (line,) = [record.message for record in caplog.records]
    assert "operation not permitted when stream is capturing" in line


def test_a_model_has_only_so_many_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_graphs, "MAX_GRAPHS", 1)
    once = cuda_graphs.EAGER_STEPS + 1  # eager steps of each shape
    actual = ways(batches=[4] * (once + 2) + [5] * (once + 3))
    assert actual == {EAGER: 2 * once, CAPTURED: 2, RECORDED: 3}


def ways(batches: Sequence[int]) -> dict[str, int]:
    """Take steps on batches of these sizes, each held beside autograd; return how they were taken."""
    torch.manual_seed(0)
    model, task = nn.Linear(3, 2), Classification()
    gradient, before = Gradient(model, task).for_round(True, GradientPipeline()), count_steps()
    with torch.no_grad():
        for size in batches:
            inputs, targets = torch.randn(size, 3), torch.randint(2, (size,))
            parameters = list(model.parameters())
            actual, sums = gradient(parameters, inputs, targets)
            expected, expected_sums = Gradient(model, task)._eager(parameters, inputs, targets)
            assert [f.tolist() for f in actual] == [e.tolist() for e in expected]
            assert float(sums["loss"]) == float(expected_sums["loss"])
            for p, g in zip(parameters, actual, strict=True):
                p.sub_(g, alpha=0.1)
    return steps_since(before)
