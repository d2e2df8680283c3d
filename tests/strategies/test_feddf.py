"""FedDF: by hand, its reduction, and what of the server's data it looks at."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, RecordDict

from baselines.engine.evaluation import Evaluator
from baselines.experiment import experiment
from helpers.federation import Federation, answer, assert_same, model_in, play, record
from helpers.runs import launch, played
from helpers.server_data import Products
from strategies import (
    AgreementMask,
    CentralPrivacy,
    Constant,
    Distillation,
    FedAvg,
    FedAvgM,
    FedDF,
    Grouped,
    LocalPrivacy,
    Uniform,
)

SMALL = "dataset=digits num_nodes=4 model=mlp rounds=2 validation_size=100 strategy=feddf"
ENDS = np.array([[math.log(81), 0.0], [0.0, 0.0]])
RATE = math.log(2) / 2


def nodes() -> Federation:
    """Return two nodes that end at (ln 81, 0) and (0, 0); by examples their mean is (ln 3, 0)."""

    def node(partition_id: int, content: RecordDict) -> RecordDict:
        return answer({"w": ENDS[partition_id], "running_mean": np.ones(1)}, (1, 3)[partition_id])

    return Federation(node, 2)


def start() -> ArrayRecord:
    return record({"w": np.zeros(2), "running_mean": np.zeros(1)})


def feddf(steps: int, inputs: tuple[float, ...] = (1.0,), **parts: object) -> FedDF:
    """Return it with logits x w for an input x."""
    data = Products("w", inputs)
    return FedDF(distillation=Distillation(steps, RATE, 2), server_data=data, **parts)  # type: ignore[arg-type]


def test_by_hand() -> None:
    """Of x = 1 the logits' mean is (ln 9, 0), so the teachers say (9/10, 1/10); the student (3/4, 1/4)."""
    ((one, _),) = play(feddf(1), nodes(), start())
    assert model_in(one)["w"].tolist() == pytest.approx([math.log(3) + RATE, -RATE], rel=1e-6)
    # Adam's second step, at half the rate: now the student says (6/7, 1/7), as its logits differ by ln 6.
    first, second = 3 / 4 - 9 / 10, 6 / 7 - 9 / 10
    m = (0.9 * 0.1 * first + 0.1 * second) / (1 - 0.9**2)
    v = (0.999 * 0.001 * first**2 + 0.001 * second**2) / (1 - 0.999**2)
    way = RATE + RATE / 2 * -m / math.sqrt(v)
    ((two, _),) = play(feddf(2), nodes(), start())
    assert model_in(two)["w"].tolist() == pytest.approx([math.log(3) + way, -way], rel=1e-6)
    assert model_in(two)["running_mean"].tolist() == [1]


def test_many_steps_reach_what_the_nodes_predict_together() -> None:
    many = FedDF(distillation=Distillation(400, 0.1, 2), server_data=Products("w", (1.0, -0.5, 2.0)))
    ((new, _),) = play(many, nodes(), start())
    w = model_in(new)["w"]
    assert w[0] - w[1] == pytest.approx(math.log(9), rel=1e-4)


def test_no_step_is_fedavg_bit_for_bit() -> None:
    none = FedDF(distillation=Distillation(steps=0))
    assert_same(play(none, nodes(), start())[0][0], play(FedAvg(), nodes(), start())[0][0])


def test_it_begins_where_the_parts_of_the_rule_lead() -> None:
    """Equal weights, a mask and eta choose where the student begins; the teachers are the same."""
    parts = {"weighting": Uniform(), "mask": AgreementMask(1.0), "step_size": Constant(0.5)}
    begun = play(FedAvg(**parts), nodes(), start())[0][0]  # type: ignore[arg-type]
    ((new, _),) = play(feddf(1, **parts), nodes(), start())
    way = model_in(new)["w"] - model_in(begun)["w"]
    assert way.tolist() == pytest.approx([RATE, -RATE], rel=1e-6)


def test_a_student_that_predicts_the_same_stays_to_the_bit() -> None:
    """Of equal weights the mean of logits is that of the mean model, whose logits are x w."""
    same = feddf(20, (1.0, 3.0, -2.0), weighting=Uniform())
    ((new, _),) = play(same, nodes(), start())
    assert_same(new, play(FedAvg(weighting=Uniform()), nodes(), start())[0][0])


def test_an_epoch_takes_each_input_once_and_a_round_draws_anew() -> None:
    rows, batches = Distillation(steps=7, batch_size=2).draw_batches(5, seed=3)
    assert rows.tolist() == [0, 1, 2, 3, 4]
    assert [len(batch) for batch in batches] == [2, 2, 1, 2, 2, 1, 2]
    for first in (0, 3):
        assert sorted(torch.cat(batches[first : first + 3]).tolist()) == [0, 1, 2, 3, 4]
    rows, (few,) = Distillation(steps=1, batch_size=2).draw_batches(50, seed=3)
    assert rows[few].tolist() == torch.randperm(50, generator=torch.Generator().manual_seed(3))[:2].tolist()
    strategy, inputs = feddf(3, tuple(np.linspace(1, 2, 50))), []
    data = strategy.server_data
    assert isinstance(data, Products)
    for t in (1, 2, 1):
        data.seen.clear()
        play(strategy, nodes(), start(), (t,))
        inputs.append(data.seen[-3:])
    assert inputs[0] == inputs[2] != inputs[1]


def test_each_group_has_its_own_teachers() -> None:
    groups = Grouped(inner=feddf(1), groups={"both": (0, 1)})
    play(groups, nodes(), start())
    (model,) = groups.models_to_evaluate(start()).values()
    assert_same(model, play(feddf(1), nodes(), start())[0][0])


def test_what_is_out_of_range_is_refused() -> None:
    for settings, line in (
        ({"steps": -1}, r"strategy\.distillation\.steps=-1 is out of range"),
        ({"steps": True}, r"strategy\.distillation\.steps=True"),
        ({"lr": 0.0}, r"strategy\.distillation\.lr=0\.0"),
        ({"batch_size": 0}, r"strategy\.distillation\.batch_size=0"),
    ):
        with pytest.raises(ValueError, match=line):
            Distillation(**settings)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="privacy=CentralPrivacy is out of range: expected none or local"):
        FedDF(weighting=Uniform(), privacy=CentralPrivacy())
    FedDF(weighting=Uniform(), privacy=LocalPrivacy())
    with pytest.raises(ValueError, match="FedDF needs examples on the server: set validation_size"):
        play(FedDF(), nodes(), start())
    FedAvgM().set_server_data(Products("w", (1.0,)))  # who does not learn with it takes it too


def test_the_outputs_are_those_of_the_validation_inputs() -> None:
    loaded = experiment.load(SMALL)
    evaluator, model = Evaluator(loaded), loaded.model().eval()
    rows = torch.tensor([7, 3])
    inputs, _ = loaded.validation_examples.batch(rows, torch.device("cpu"))
    moved = {name: (value + 0.01).requires_grad_() for name, value in model.state_dict().items()}
    outputs = evaluator.compute_outputs(moved, rows)
    model.load_state_dict(moved)
    torch.testing.assert_close(outputs, model(inputs), rtol=0, atol=0)
    outputs.sum().backward()
    assert all(value.grad is not None for value in moved.values())
    assert evaluator.num_inputs == 100


@pytest.mark.slow
def test_a_run_learns_without_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = played(SMALL.replace("feddf", "fedavg"), tmp_path / "plain")
    assert played(f"{SMALL} strategy.distillation.steps=0", tmp_path / "none").equals(plain)
    some = played(SMALL, tmp_path / "some")
    assert not some.equals(plain)
    batch = Evaluator.compute_outputs

    def without_labels(self: Evaluator, *given: object) -> torch.Tensor:
        self._server_examples.targets[self._server_examples.index] = 0
        return batch(self, *given)  # type: ignore[arg-type]

    kept = experiment.load(SMALL).dataset.train_targets.clone()
    monkeypatch.setattr(Evaluator, "compute_outputs", without_labels)
    try:
        unlabelled = played(SMALL, tmp_path / "unlabelled")
    finally:
        experiment.load(SMALL).dataset.train_targets.copy_(kept)
    is_test = some.split == "test"
    assert unlabelled[unlabelled.split == "test"].equals(some[is_test])


def test_without_examples_it_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert launch(*f"dataset=digits strategy=feddf hydra.run.dir={tmp_path}".split()) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "FedDF needs validation examples on the server, and validation_size=0" in line
