"""Which array lies where."""

import numpy as np
import pytest
import torch
from flwr.app import RecordDict
from flwr.serverapp import strategy as flower

from helpers.federation import Federation, answer, model_in, play, record
from strategies import Adam, Constant, FedAdam, FedAvg
from strategies.parts.layout import Layout


def test_parameters_and_buffers_each_lie_one_after_another() -> None:
    layout = Layout.of(
        record(
            {
                "a": np.zeros((2, 3)),
                "bn.running_var": np.zeros(4),
                "b": np.zeros(()),
                "steps": np.array(7),
                "c": np.zeros(5, np.float32),
            }
        )
    )
    actual = {
        layer.name: (layer.is_buffer, layer.columns.start, layer.columns.stop) for layer in layout.layers
    }
    assert actual == {
        "a": (False, 0, 6),
        "bn.running_var": (True, 0, 4),
        "b": (False, 6, 7),
        "steps": (True, 4, 5),
        "c": (False, 7, 12),
    }
    assert (layout.num_parameters, layout.num_buffers) == (12, 5)
    assert layout.dtype == torch.float64  # the widest


def test_half_precision_is_stepped_in_float32_and_sent_as_it_came() -> None:
    """In float16, v = 1e-8 would be 0, and epsilon 6e-5: the step would be 2.4 times as long."""

    def trained(dtype: type) -> list[float]:
        ends = Federation(lambda *_: answer({"w": np.array([-1e-3, -1e-2, -1], dtype)}), 1)
        adam = FedAdam(num_nodes=1, server_optimizer=Adam(epsilon=1e-8), step_size=Constant(0.125))
        ((new, _),) = play(adam, ends, record({"w": np.zeros(3, dtype)}))
        assert model_in(new)["w"].dtype == dtype
        return model_in(new)["w"].tolist()

    assert trained(np.float16) == pytest.approx(trained(np.float32), rel=1e-3)


def test_a_whole_name_comes_before_the_ends_of_names() -> None:
    """Numbered arrays, as ArrayRecord makes them of a list."""
    numbered = record({str(k): np.zeros(2) for k in range(14)})
    layout = Layout.of(numbered, ("3", "running_mean"))
    assert [layer.name for layer in layout.buffers] == ["3"]
    named = record({"a.scale": np.zeros(2), "b.scale": np.zeros(2), "w": np.zeros(2)})
    assert [layer.name for layer in Layout.of(named, ("scale",)).buffers] == ["a.scale", "b.scale"]
    assert [layer.name for layer in Layout.of(named, ("scale", "a.scale")).buffers] == [
        "a.scale",
        "b.scale",
    ]


def test_a_model_without_buffers_has_none() -> None:
    layout = Layout.of(record({"w": np.zeros(3, np.float32)}))
    assert layout.num_buffers == 0
    assert layout.dtype == torch.float32


@pytest.mark.parametrize("arrays", [{}, {"on": np.array(True)}, {"bn.running_mean": np.zeros(2)}], ids=str)
def test_a_model_without_a_parameter_is_refused(arrays: dict[str, np.ndarray]) -> None:
    with pytest.raises(ValueError, match="no parameter to train"):
        Layout.of(record(arrays))


def test_what_does_not_fit_is_named() -> None:
    layout = Layout.of(record({"w": np.zeros((2, 3)), "steps": np.array(1)}))
    assert layout.mismatch(record({"steps": np.array(1), "w": np.ones((2, 3))})) is None
    assert layout.mismatch(record({"w": np.ones((2, 3))}), parameters_only=True) is None
    for arrays, fault in (
        ({"w": np.zeros((2, 3))}, "lacks 'steps'"),
        ({"w": np.zeros((3, 2)), "steps": np.array(1)}, r"'w' has shape (3, 2), the model's (2, 3)"),
        (
            {"w": np.zeros((2, 3)), "steps": np.array(1), "x": np.zeros(1)},
            "has 'x', which the model does not have",
        ),
    ):
        assert fault in str(layout.mismatch(record(arrays)))


def test_whole_numbers_are_rounded() -> None:
    layout = Layout.of(record({"w": np.zeros(1, np.float32), "steps": np.array(0)}))
    made = layout.record(torch.tensor([0.5]), torch.tensor([2.75], dtype=torch.float64))
    assert made["steps"].numpy() == 3
    assert made["w"].numpy().tolist() == [0.5]
    assert list(layout.record(torch.tensor([0.5]), None)) == ["w"]


def test_counts_are_averaged_as_flower_averages_them() -> None:
    """Whole numbers alone, as in federated analytics; their mean is sent on, and may be no whole number."""
    counts = [{"a": np.array([1, 2, 3]), "b": np.array(10)}, {"a": np.array([4, 8, 3]), "b": np.array(11)}]

    def node(partition_id: int, content: RecordDict) -> RecordDict:
        return answer(counts[partition_id], 1 + partition_id)

    start = record({"a": np.zeros(3, np.int64), "b": np.array(0)})
    stock = flower.FedAvg(fraction_evaluate=0.0).start(Federation(node, 2), start, num_rounds=2)
    result = FedAvg(federated_evaluation=False).start(Federation(node, 2), start, num_rounds=2)
    for name, values in model_in(stock.arrays).items():
        np.testing.assert_allclose(model_in(result.arrays)[name], values, rtol=1e-12)
    assert model_in(result.arrays)["a"].tolist() == pytest.approx([3, 6, 3])
