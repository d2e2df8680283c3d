"""What lies on an accelerator, and what goes there; torch's meta device stands for one."""

import logging
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.optim import SGD
from torch.utils._python_dispatch import TorchDispatchMode

from clients import Examples, LocalTraining
from clients import examples as module
from clients.examples import LazyRows, Normalize, get_memory, make_resident

META, CPU = torch.device("meta"), torch.device("cpu")


@pytest.fixture(autouse=True)
def _free(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the accelerator have 1,000 bytes free, and hold nothing yet."""
    monkeypatch.setattr(module, "get_memory", lambda _: (1000, 9000))
    monkeypatch.setattr(module, "_copies", {})


class Crossings(TorchDispatchMode):
    """Counts the tensors that go from host memory to the accelerator."""

    count = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        crosses = func is torch.ops.aten._to_copy.default and args[0].device == CPU
        self.count += crosses and result.device == META
        return result


def test_a_tensor_goes_there_once_where_it_fits() -> None:
    fits = torch.zeros(500, dtype=torch.uint8)
    copy = make_resident(fits, META, 0.5)
    assert copy.device == META
    assert make_resident(fits, META, 0.5) is copy
    assert make_resident(fits, CPU, 0.5) is fits


@pytest.mark.parametrize(
    ("memory", "expected"),
    [
        ({"mem_get_info": lambda _: (3, 8)}, (3, 8)),
        ({"recommended_max_memory": lambda: 8, "driver_allocated_memory": lambda: 5}, (3, 8)),  # torch.mps
        ({"recommended_max_memory": lambda: 8, "driver_allocated_memory": lambda: 9}, (0, 8)),
        ({}, (0, 0)),
    ],
)
def test_what_is_free_by_what_torch_says_of_a_kind(
    memory: dict[str, Any], expected: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "get_device_module", lambda _: SimpleNamespace(**memory))
    assert get_memory(torch.device("mps")) == expected
    assert get_memory(CPU) == (0, 0)


def test_what_does_not_fit_stays_and_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    large = torch.zeros(501, dtype=torch.uint8)
    with caplog.at_level(logging.WARNING, "flwr.clients"):
        assert make_resident(large, META, 0.5) is large
        assert make_resident(large, META, 0.5) is large
    assert [record.message.count("device_memory_share=0.5") for record in caplog.records] == [1]


def test_a_copy_is_gone_with_its_data() -> None:
    values = torch.zeros(10)
    make_resident(values, META, 0.5)
    assert len(module._copies[META]) == 1
    del values
    assert len(module._copies[META]) == 0


@pytest.mark.parametrize("batch_size", [2, 5, 20])
def test_an_epochs_order_goes_there_at_once(batch_size: int) -> None:
    inputs, targets = torch.zeros(20, 1, 2, 2, dtype=torch.uint8), torch.zeros(20, dtype=torch.int64)
    transform = Normalize((0.5,), (0.5,))
    examples = Examples(inputs, targets, torch.arange(20), transform)
    training = LocalTraining(optimizer=partial(SGD, lr=0.1), batch_size=batch_size, local_epochs=3)
    for _ in range(2):
        draws = torch.Generator().manual_seed(0)
        with Crossings() as crossings:
            batches = list(training.batches(examples, META, draws))
    assert len(batches) == 3 * 20 // batch_size if batch_size < 20 else 3
    assert {(x.device, y.device) for x, y in batches} == {(META, META)}
    assert crossings.count == (3 if batch_size < 20 else 0)  # a whole batch needs no order


def test_rows_that_are_read_lazily_are_selected_in_host_memory() -> None:
    source = [(torch.ones(3), k) for k in range(4)]
    examples = Examples(LazyRows(source), torch.arange(4), torch.arange(4))
    assert examples.place(META) == CPU
    inputs, targets = examples.batch(torch.tensor([2, 0]), META)
    assert inputs.device == targets.device == META
    assert inputs.shape == (2, 3)


def test_without_room_batches_are_selected_in_host_memory() -> None:
    examples = Examples(torch.zeros(4, 300), torch.arange(4), torch.arange(4))
    assert examples.place(META) == CPU
    inputs, targets = examples.batch(torch.tensor([2, 0]), META)
    assert inputs.device == targets.device == META
