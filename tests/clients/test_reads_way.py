"""Methods that take a node's way for the gradients of a round: what else would move it is refused."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from torch import nn

from baselines.errors import UserError
from baselines.experiment import experiment
from baselines.experiment.preflight import check
from clients import Classification, Examples, LeastSquares, Proximal, RoundStart
from clients.app import check_training
from clients.compression import UpdateEncoder
from clients.correction import Correction
from clients.evaluation import evaluate
from clients.methods.qfedavg import StartLoss
from clients.methods.uga import full_gradient, full_loss
from clients.round import BUILT_IN, ClientRound
from clients.tasks import Task
from helpers.runs import launch
from strategies import LowRank, RandomMask
from strategies.shared import flower_private
from strategies.shared.seeding import generator

KEPT = "client.keep_optimizer=true client.optimizer.momentum=0.9"
LESS = "client.stragglers=0.5 client.local_epochs=3"
OWN = "corrections=own_initial_model"
REFUSED = {
    f"strategy=scaffold {KEPT}": "client.keep_optimizer=true: strategy=scaffold's option 2",
    f"strategy=fednova {KEPT}": "client.keep_optimizer=true: strategy=scaffold's option 2",
    f"compression=random_mask {KEPT}": "client.keep_optimizer=true: a compression sends no more",
    "compression=low_rank client.keep_optimizer=true client=adam": "a compression sends no more than",
    f"strategy=scaffold {OWN}": "client.corrections.own_initial_model: strategy=scaffold's option 2",
    f"strategy=fednova {OWN}": "client.corrections.own_initial_model: strategy=scaffold's option 2",
    "personal=ditto node_test_fraction=0.2 "
    + OWN: "client.corrections.own_initial_model: client.personal=Ditto keeps a node's own model",
    "strategy=scaffold compression=random_mask": "SCAFFOLD's option 2 computes a node's gradient from how",
    "strategy=scaffold compression=low_rank": "SCAFFOLD's option 2 computes a node's gradient from how far",
    "strategy=scaffold +client.optimizer.maximize=true": "client.optimizer is SGD that maximises",
    "strategy=fedprox corrections=proximal": "client.corrections.proximal: the strategy asks for the same",
    "strategy=scaffnew client.optimizer.momentum=0.9": "client.optimizer is SGD, not plain SGD: Scaffnew",
    f"strategy=scaffnew {OWN}": "client.corrections.own_initial_model: strategy=scaffold's option 2",
    f"strategy=scaffnew {LESS}": "client.stragglers=0.5: strategy=scaffnew draws how many steps",
    "strategy=feddyn privacy=central": "privacy=CentralPrivacy is out of range: expected none under",
    "strategy=feddyn compression=sketch": "compression=Sketch is out of range: expected none under",
    "strategy=feddyn compression=top_k": "compression=TopK is out of range: expected none under",
    f"compression=random_mask {OWN}": "compression=random_mask or low_rank would send no more than a share",
    f"compression=low_rank {OWN}": "compression=random_mask or low_rank would send no more than a share",
    f"strategy=fednova compression=top_k {LESS}": "compression.error_feedback=true with aggregation=norm",
}
TAKEN = [
    f"strategy=scaffold strategy.option=1 {KEPT}",
    "strategy=scaffold client.keep_optimizer=true",  # SGD without momentum keeps nothing
    f"strategy=scaffold strategy.option=1 {OWN}",
    "strategy=scaffold strategy.option=1 compression=random_mask",
    "strategy=scaffold compression=sketch",
    f"personal=per_fedavg node_test_fraction=0.2 {OWN}",
    f"strategy=fedprox {KEPT}",
    f"compression=sketch {KEPT}",
    f"compression=sketch {OWN}",
    "strategy=fednova compression=top_k",  # with error feedback
    f"strategy=fednova compression=sketch {LESS}",
]


@pytest.mark.parametrize(("overrides", "message"), REFUSED.items(), ids=REFUSED)
def test_what_would_count_as_gradients_of_the_round_is_refused(
    overrides: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["model=softmax", "num_nodes=3", *overrides.split(), f"hydra.run.dir={tmp_path}"]
    assert launch(*arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("overrides", TAKEN)
def test_what_would_not_is_taken(overrides: str) -> None:
    try:
        check(experiment.load(f"model=softmax num_nodes=3 {overrides}"))
    except UserError as error:
        pytest.fail(str(error))


def started(model: nn.Module, targets: torch.Tensor, task: Task, batch_size: int | None) -> RoundStart:
    examples = Examples(torch.eye(4)[: len(targets)], targets, torch.arange(len(targets)))
    content = RecordDict({"arrays": ArrayRecord(), "config": ConfigRecord({"server-round": 1})})
    optimizer = torch.optim.SGD
    return RoundStart(model, examples, task, optimizer, 1, batch_size, content, RecordDict(), 0)  # type: ignore[arg-type]


def test_the_loss_that_q_fedavg_is_told_is_the_one_that_a_node_minimises() -> None:
    """Least squares: half of 1 + 4 + 9, where 30 times their mean is reported."""
    model = nn.Linear(4, 1, bias=False)
    nn.init.zeros_(model.weight)
    start = started(model, torch.tensor([[1.0], [2.0], [3.0]]), LeastSquares(), None)
    assert StartLoss(start).loss == pytest.approx(7.0)
    assert evaluate(model, start.examples, start.task)["loss"] == pytest.approx(140.0)


def test_of_a_mean_loss_it_is_the_mean_over_all_examples_whatever_the_batches() -> None:
    torch.manual_seed(0)
    model, labels = nn.Linear(4, 3), torch.tensor([0, 2, 1, 2])
    for batch_size in (None, 3, 1):
        start = started(model, labels, Classification(), batch_size)
        reported = evaluate(model, start.examples, start.task)["loss"]
        assert StartLoss(start).loss == pytest.approx(reported, rel=1e-6)


def test_a_loss_that_is_a_sum_has_no_gradient_at_its_optimum_whatever_the_batches() -> None:
    """A smaller last batch counts for each of its examples as the others do, as in an epoch of steps."""
    torch.manual_seed(0)
    inputs, targets = torch.randn(30, 4), torch.randn(30, 1)
    model, examples = nn.Linear(4, 1, bias=False), Examples(inputs, targets, torch.arange(30))
    nn.init.zeros_(model.weight)
    model.weight.data.copy_(torch.linalg.lstsq(inputs, targets).solution.T)
    for batch_size, batches in ((None, 1), (10, 3), (20, 2)):
        (gradient,) = full_gradient(model, examples, LeastSquares(), batch_size)
        torch.testing.assert_close(gradient, torch.zeros(1, 4), atol=1e-5, rtol=0)
        whole = full_loss(model, examples, LeastSquares(), None)
        assert full_loss(model, examples, LeastSquares(), batch_size) == pytest.approx(whole / batches)


def test_private_layers_are_trained_as_a_whole_under_a_restriction() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    coding = UpdateEncoder.from_config(
        RandomMask(share=0.25).train_config(), model, lambda: generator(0, 1), ["last"]
    )
    assert coding is not None
    (restricted,) = coding.make_corrections(model)
    restricted.transform_gradients(list(model.parameters()))
    left = [int(p.grad.count_nonzero()) for p in model.parameters() if p.grad is not None]
    assert left == [16, 2, 64, 8]


@pytest.fixture
def elsewhere() -> type[Correction]:
    """A correction that a message asks for, and that begins from zeros in place of the server's model."""

    class Elsewhere(Correction):
        config_key = "start-at-zero"
        changes_initial_model = True

        def __init__(self, start: RoundStart) -> None:
            with torch.no_grad():
                for parameter in start.named.values():
                    parameter.zero_()

    return Elsewhere


@pytest.mark.parametrize(
    ("overrides", "config", "setting"),
    [
        ("compression=random_mask", RandomMask().train_config(), "compression=random_mask"),
        ("compression=low_rank", LowRank().train_config(), "low_rank"),
        ("strategy=scaffold", {"control-option": 2}, "strategy=scaffold"),
        ("personal=ditto node_test_fraction=0.2", {}, "client.personal=Ditto"),
    ],
)
def test_a_start_elsewhere_that_a_message_asks_for_is_refused_as_a_chosen_one_is(
    elsewhere: type[Correction], overrides: str, config: dict[str, object], setting: str
) -> None:
    training = experiment.load(f"model=softmax num_nodes=3 {overrides}").training
    check_training(training, config)
    with pytest.raises(ValueError, match=f"Elsewhere, which the strategy asks for: .*{setting}"):
        check_training(training, {**config, elsewhere.config_key: True}, (*BUILT_IN, elsewhere))


def test_what_the_others_look_at_is_the_model_that_was_sent(elsewhere: type[Correction]) -> None:
    """FedProx' term holds a node to the server's model, wherever the node begins."""
    setup = experiment.load("model=softmax num_nodes=3 corrections=proximal strategy=fedavg")
    sent = setup.initial_arrays()
    config = ConfigRecord({"server-round": 1, elsewhere.config_key: True})
    content = RecordDict({"arrays": sent, "config": config})
    flower_private.become_server()
    message = Message(content, 1, "train")
    node = replace(setup.node(0), known_corrections=(*BUILT_IN, elsewhere))
    turn = ClientRound(node, message, Context(0, 1, {"partition-id": 0}, RecordDict(), {}))
    proximal, moved = turn.corrections
    assert isinstance(proximal, Proximal)
    assert isinstance(moved, elsewhere)
    assert proximal.gradient_transform is not None
    for anchor, name in zip(proximal.gradient_transform.fixed[0], sent, strict=True):
        assert np.array_equal(anchor.numpy(), sent[name].numpy())


def test_one_that_a_message_asks_for_and_that_remembers_makes_nodes_remember(
    elsewhere: type[Correction], monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = experiment.Experiment("model=softmax num_nodes=3")
    assert not setup.has_stateful_nodes
    elsewhere.remembers = True
    monkeypatch.setattr(type(setup.prototype), "train_config", lambda _: {elsewhere.config_key: True})
    assert not setup.has_stateful_nodes
    setup.__dict__["known_corrections"] = (*BUILT_IN, elsewhere)
    assert setup.has_stateful_nodes
