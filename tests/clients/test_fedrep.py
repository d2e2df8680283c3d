"""FedRep: two rounds by hand, its reduction, what it is good for. tests/agreement has it in plain torch."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import Parameter
from torch.optim import SGD

from baselines.experiment import experiment
from clients import Classification, Correction, FedRep, LocalTraining, RoundStart
from helpers.one_node import OneNode
from helpers.plain_loop import examples, perceptron
from helpers.runs import played

SMALL = "dataset=digits num_nodes=3 rounds=2 node_test_fraction=0.2"


def test_two_rounds_and_an_evaluation_by_hand() -> None:
    """Two steps of b, a at rest, then one of a: b = 0.1, 0.19, then a = 0.081.

    The server sends a = 0.2: b = 0.251, 0.3059, then a = 0.24941. Judged at 0.3 the residual is 0.3941.
    """
    node = OneNode({"private": ["bias"], "personal": FedRep(head_epochs=2)})
    for server_round, sent, a, b in ((1, 0.0, 0.081, 0.19), (2, 0.2, 0.24941, 0.3059)):
        assert node.trained(sent, server_round) == pytest.approx({"weight": a, "bias": 0})
        assert node.kept("private") == pytest.approx({"bias": b})
    assert node.loss(0.3) == pytest.approx(0.3941**2)


@pytest.mark.slow
def test_without_epochs_of_the_head_it_is_fedper(tmp_path: Path) -> None:
    fedper = played(f"{SMALL} private=fedper", tmp_path / "fedper")
    without = f"{SMALL} personal=fedrep client.personal.head_epochs="
    assert fedper.equals(played(f"{without}0", tmp_path / "none"))
    assert not fedper.equals(played(f"{without}1", tmp_path / "one"))


def test_what_is_private_may_be_chosen_beside_it() -> None:
    """``private=`` is taken where both are given, in whatever order."""
    for given in ("personal=fedrep private=fedbn", "private=fedbn personal=fedrep"):
        assert experiment.load(given).training.private == ["*Norm*"]
    assert experiment.load("personal=fedrep").training.private == ["last"]


class Breaking(Correction):
    """Fails at the first step of the body."""

    def __init__(self, start: RoundStart | None = None) -> None:
        """Need nothing of the round."""

    def transform_gradients(self, parameters: object) -> None:
        raise RuntimeError("broken")


def test_all_parameters_can_be_trained_again_even_where_it_failed() -> None:
    model = perceptron()
    training = LocalTraining(optimizer=partial(SGD, lr=0.1), private=["last"], personal=FedRep(1))
    with pytest.raises(RuntimeError, match="broken"):
        training(model, examples(), Classification(), server_round=1, seed=3, corrections=[Breaking()])
    assert all(p.requires_grad for p in model.parameters())


class Ridge(Correction):
    """A term in the loss, whose gradient of the head is large."""

    def __init__(self, start: RoundStart | None = None) -> None:
        """Need nothing of the round."""

    def loss_term(self, model: nn.Module, inputs: Tensor, outputs: Tensor, targets: Tensor) -> Tensor:
        return 5.0 * sum(p.square().sum() for p in model.parameters())


def test_terms_are_the_bodys() -> None:
    """The head trains as without the term, the body otherwise."""

    def trained(corrections: list[Correction]) -> nn.Module:
        torch.manual_seed(3)
        model = perceptron()
        training = LocalTraining(optimizer=partial(SGD, lr=0.01), private=["last"], personal=FedRep(2))
        training(model, examples(), Classification(), server_round=1, seed=3, corrections=corrections)
        return model

    plain, pulled = trained([]), trained([Ridge()])
    assert torch.equal(plain[2].weight, pulled[2].weight)
    assert pulled[0].weight.norm() < 0.9 * plain[0].weight.norm()


class Enough(Correction):
    """Ends the round after two steps, and looks at all parameters as a gradient of all of them would."""

    def __init__(self, start: RoundStart | None = None) -> None:
        self.calls: list[bool] = []

    def should_stop(self, parameters: Sequence[Parameter]) -> bool:
        self.calls.append(all(p.requires_grad for p in parameters) and len(parameters) == 4)
        return len(self.calls) == 2


def test_a_correction_ends_the_bodys_training() -> None:
    model, ending = perceptron(), Enough()
    before = [p.detach().clone() for p in model.parameters()]
    training = LocalTraining(
        optimizer=partial(SGD, lr=0.1), private=["last"], personal=FedRep(3), batch_size=16
    )
    given = examples(), Classification()
    metrics = training(model, *given, server_round=1, seed=3, corrections=[ending])
    assert metrics["local-steps"] == 2
    assert ending.calls == [True, True]
    assert not any(torch.equal(p, was) for p, was in zip(model.parameters(), before, strict=True))
