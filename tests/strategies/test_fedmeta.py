"""FedMeta: by hand, its reduction, and with the server's own examples."""

from pathlib import Path

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, RecordDict

from baselines.engine.evaluation import Evaluator
from baselines.experiment import experiment
from helpers.federation import Federation, answer, assert_same, model_in, play, record
from helpers.runs import launch, lines_in, played
from helpers.server_data import Functions
from strategies import FedAdam, FedAvg, FedMeta, LocalOnly
from strategies.shared.arrays import view_values

SMALL = "dataset=digits num_nodes=4 model=mlp rounds=2 validation_size=100 strategy=fedmeta"


def nodes() -> Federation:
    """Return two nodes that end at (2, 0) and (4, 4) from anywhere; their mean by examples is (3.5, 3)."""

    def node(partition_id: int, content: RecordDict) -> RecordDict:
        ends = np.array([[2.0, 0.0], [4.0, 4.0]])[partition_id]
        return answer({"w": ends, "running_mean": np.ones(1)}, (1, 3)[partition_id])

    return Federation(node, 2)


def start() -> ArrayRecord:
    return record({"w": np.zeros(2), "running_mean": np.zeros(1)})


def slope(arrays: ArrayRecord) -> ArrayRecord:
    """Return w - (1, 1): of the distance to (1, 1)."""
    assert view_values(arrays["running_mean"]).tolist() == [1]  # the round's model is whole
    return record({"w": view_values(arrays["w"]) - 1, "running_mean": np.zeros(1)})


def test_by_hand() -> None:
    """v = (3.5, 3), and a step of 0.2 along (2.5, 2)."""
    ((new, _),) = play(FedMeta(meta_rate=0.2, server_data=Functions(gradient=slope)), nodes(), start())
    assert model_in(new)["w"].tolist() == pytest.approx([3.0, 2.6], rel=1e-12)


def test_a_rate_of_0_is_fedavg_bit_for_bit() -> None:
    none = FedMeta(meta_rate=0.0)
    assert not none.needs_server_data
    assert_same(play(none, nodes(), start())[0][0], play(FedAvg(), nodes(), start())[0][0])


def test_it_needs_examples_and_takes_a_gradient() -> None:
    strategy = FedMeta()
    assert strategy.needs_server_data
    with pytest.raises(ValueError, match="FedMeta needs examples on the server"):
        play(strategy, nodes(), start())
    strategy.set_server_data(Functions(gradient=slope))
    assert not strategy.needs_server_data
    FedAdam().set_server_data(Functions(gradient=slope))  # who does not learn with it takes it too


def test_each_group_learns_with_it() -> None:
    local = LocalOnly(inner=FedMeta(meta_rate=0.2))
    assert local.needs_server_data
    local.set_server_data(Functions(gradient=slope))
    play(local, nodes(), start())
    actual = {
        name: model_in(model)["w"].tolist() for name, model in local.models_to_evaluate(start()).items()
    }
    assert actual["node0"] == pytest.approx([1.8, 0.2], rel=1e-12)  # (2, 0), and 0.2 along (1, -1)
    assert actual["node1"] == pytest.approx([3.4, 3.4], rel=1e-12)


def test_a_negative_rate_is_refused() -> None:
    with pytest.raises(ValueError, match=r"strategy\.meta_rate=-1 is out of range"):
        FedMeta(meta_rate=-1)


def test_the_gradient_is_that_of_the_validation_examples() -> None:
    setup = experiment.load(SMALL)
    actual = Evaluator(setup).compute_gradient(setup.initial_arrays())
    model, data = setup.model().eval(), setup.validation_examples
    assert len(data) == 100
    loss, _ = setup.dataset.task(
        model(data.batch(slice(None), torch.device("cpu"))[0]), data.targets[data.index]
    )
    expected = torch.autograd.grad(loss, [*model.parameters()])
    for array, g in zip(actual.values(), expected, strict=True):
        np.testing.assert_allclose(view_values(array), g.numpy(), rtol=1e-5, atol=1e-7)


class Tied(torch.nn.Module):
    """8 x 8 numbers through one matrix twice, which has two names."""

    def __init__(self, num_classes: int, **_: object) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(64, 64, bias=False), torch.nn.Linear(64, 64, bias=False)
        self.second.weight = self.first.weight
        self.last = torch.nn.Linear(64, num_classes)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.last(self.second(self.first(inputs.flatten(1)).relu()))


def test_a_parameter_of_two_names_moves_under_both() -> None:
    loaded = experiment.load(
        SMALL.replace("model=mlp", f"'model={{_target_: {__name__}.Tied, num_classes: 10}}'")
    )
    start, strategy = loaded.initial_arrays(), FedMeta(meta_rate=0.5, server_data=Evaluator(loaded))

    def stay(partition_id: int, content: RecordDict) -> RecordDict:
        return answer(model_in(start), 1)

    actual = model_in(play(strategy, Federation(stay, 2), start)[-1][0])
    model, data = loaded.model().eval(), loaded.validation_examples
    inputs, targets = data.batch(slice(None), torch.device("cpu"))
    loss, _ = loaded.dataset.task(model(inputs), targets)
    (slope_of_both,) = torch.autograd.grad(loss, [model.first.weight])
    expected = (model.first.weight - 0.5 * slope_of_both).detach().numpy()
    assert np.abs(expected - model.first.weight.detach().numpy()).max() > 1e-3
    for name in ("first.weight", "second.weight"):
        np.testing.assert_allclose(actual[name], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_on_digits_the_meta_step_is_taken_and_without_it_it_is_fedavg(tmp_path: Path) -> None:
    plain = played(SMALL.replace("fedmeta", "fedavg"), tmp_path / "plain")
    assert played(f"{SMALL} strategy.meta_rate=0", tmp_path / "none").equals(plain)
    assert not played(SMALL, tmp_path / "some").equals(plain)


@pytest.mark.slow
def test_a_resumed_run_is_one_in_one_go(tmp_path: Path) -> None:
    words = [*f"{SMALL} checkpoint_every=1".split()]
    assert launch(*words, "rounds=3", f"hydra.run.dir={tmp_path / 'whole'}") == 0
    for rounds in ("rounds=2", "rounds=3"):
        assert launch(*words, rounds, "resume=true", f"hydra.run.dir={tmp_path / 'parts'}") == 0
    assert lines_in(tmp_path / "parts") == lines_in(tmp_path / "whole")


def test_without_examples_it_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert launch(*f"dataset=digits strategy=fedmeta hydra.run.dir={tmp_path}".split()) == 2
    error = capsys.readouterr().err
    assert "FedMeta needs validation examples on the server, and validation_size=0" in error
    assert len(error.splitlines()) == 1
