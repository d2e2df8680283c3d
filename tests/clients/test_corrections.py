"""What is done to a step's gradient: FedProx' term, and what is observed of it."""

import copy
from collections.abc import Callable, Sequence
from functools import partial
from itertools import repeat
from typing import Any

import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from torch import Tensor, nn
from torch.optim import SGD

from clients import (
    Classification,
    Correction,
    FedRep,
    GradientTransform,
    GradientVariance,
    LocalTraining,
    Node,
    PerFedAvg,
    Proximal,
    RoundStart,
)
from clients.fast.trace import Step
from clients.optimizer_step import GradientPipeline
from clients.round import ClientRound
from helpers.plain_loop import SEED, by_hand, examples, perceptron, seeded, start_of
from strategies.shared.flower_private import become_server


@pytest.mark.parametrize("clip", [None, 0.5], ids=["", "clipped"])
def test_the_proximal_term_by_hand(clip: float | None) -> None:
    """Clipping comes after the term, as if it stood in the loss."""
    ours, plain, data = seeded(perceptron), seeded(perceptron), examples()
    training = LocalTraining(
        optimizer=partial(SGD, lr=0.1, momentum=0.9), local_epochs=2, batch_size=16, max_grad_norm=clip
    )
    term = Proximal(start_of(ours), mu=0.7)
    training(ours, data, Classification(), server_round=1, seed=SEED, corrections=[term])
    optimizer = SGD(plain.parameters(), lr=0.1, momentum=0.9)
    by_hand(plain, data, optimizer, epochs=2, batch_size=16, clip=clip, mu=0.7)
    for a, b in zip(ours.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)


def test_the_proximal_term_is_the_gradient_of_the_squared_distance() -> None:
    start = torch.randn(4, dtype=torch.float64)
    w = nn.Parameter(start.clone())
    term = Proximal(start_of(nn.ParameterList([w])), mu=0.3)
    with torch.no_grad():
        w += torch.arange(4.0, dtype=torch.float64)
    loss_gradient = torch.randn(4, dtype=torch.float64)
    (expected,) = torch.autograd.grad(w @ loss_gradient + 0.3 / 2 * (w - start).square().sum(), w)
    w.grad = loss_gradient.clone()
    term.transform_gradients([w])
    torch.testing.assert_close(w.grad, expected, rtol=1e-14, atol=1e-14)


def test_gradient_variance_is_what_torch_computes() -> None:
    w, observed = nn.Parameter(torch.zeros(3, 2)), GradientVariance()
    gradients = torch.randn(5, 3, 2, generator=torch.Generator().manual_seed(0))
    for g in gradients:
        w.grad = g.clone()
        observed.transform_gradients([w])
    assert torch.equal(w.grad, gradients[-1])
    metrics: dict[str, float] = {}
    observed.on_round_end([w], metrics)
    assert metrics["gradient-variance"] == pytest.approx(float(gradients.var(0).mean()), rel=1e-5)


def test_gradient_variance_of_one_step_is_zero() -> None:
    w, observed, metrics = nn.Parameter(torch.zeros(2)), GradientVariance(), dict[str, float]()
    w.grad = torch.ones(2)
    observed.transform_gradients([w])
    observed.on_round_end([w], metrics)
    assert metrics == {"gradient-variance": 0.0}


def test_gradient_variance_of_two_steps_is_divided_by_one() -> None:
    """Of 1 and 4 it is 4.5, of 2 and 2 it is 0: 2.25 over the two coordinates."""
    w, observed, metrics = nn.Parameter(torch.zeros(2)), GradientVariance(), dict[str, float]()
    for gradient in ([1.0, 2.0], [4.0, 2.0]):
        w.grad = torch.tensor(gradient)
        observed.transform_gradients([w])
    observed.on_round_end([w], metrics)
    assert metrics == {"gradient-variance": 2.25}


class Distance(Correction):
    """FedProx' term, as it stands in the loss."""

    def __init__(self, start: RoundStart, mu: float) -> None:
        self.anchor = [p.detach().clone() for p in start.named.values()]
        self.mu = mu

    def loss_term(self, model: nn.Module, inputs: Tensor, outputs: Tensor, targets: Tensor) -> Tensor:
        squares = [(p - w).square().sum() for p, w in zip(model.parameters(), self.anchor, strict=True)]
        return self.mu / 2 * torch.stack(squares).sum()


class Distilled(Correction):
    """The outputs stay near those of the model that the server sent."""

    def __init__(self, start: RoundStart) -> None:
        self.teacher = copy.deepcopy(start.model).eval()

    def loss_term(self, model: nn.Module, inputs: Tensor, outputs: Tensor, targets: Tensor) -> Tensor:
        with torch.no_grad():
            wanted = self.teacher(inputs).softmax(1)
        return -(wanted * outputs.log_softmax(1)).sum(1).mean()


class Smoothed(Correction):
    """Cross-entropy with smoothed labels in place of the task's loss."""

    def __init__(self, start: RoundStart | None = None) -> None:
        """Need nothing of the round."""

    def replace_loss(self, model: nn.Module, inputs: Tensor, outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(outputs, targets, label_smoothing=0.2)


def trained(*corrections: Correction) -> nn.Module:
    model = seeded(perceptron)
    training = LocalTraining(optimizer=partial(SGD, lr=0.1), local_epochs=3, batch_size=16)
    training(model, examples(), Classification(), server_round=1, seed=SEED, corrections=corrections)
    return model


def test_a_term_of_the_loss_is_its_gradient() -> None:
    in_loss = trained(Distance(start_of(seeded(perceptron)), 0.7))
    as_gradient = trained(Proximal(start_of(seeded(perceptron)), 0.7))
    for a, b, plain in zip(*(each.parameters() for each in (in_loss, as_gradient, trained())), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)
        assert not torch.allclose(a, plain, rtol=1e-3)


def test_a_term_sees_inputs_and_outputs() -> None:
    model, plain = (seeded(perceptron) for _ in range(2))
    data, sgd, task = examples(), partial(SGD, lr=0.1), Classification()
    training = LocalTraining(optimizer=sgd, local_epochs=None, local_steps=2, batch_size=None)
    training(model, data, task, server_round=1, seed=SEED, corrections=[Distilled(start_of(model))])
    teacher, optimizer = copy.deepcopy(plain), SGD(plain.parameters(), lr=0.1)
    inputs, targets = data.batch(slice(None), torch.device("cpu"))
    for _ in range(2):
        optimizer.zero_grad()
        outputs = plain(inputs)
        near = nn.functional.cross_entropy(outputs, teacher(inputs).detach().softmax(1))
        (nn.functional.cross_entropy(outputs, targets) + near).backward()
        optimizer.step()
    for a, b in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("term", [0, 1], ids=["", "and a term"])
def test_a_loss_in_place_of_the_tasks(term: int) -> None:
    """The metrics stay the task's; what others add is added."""
    model, plain, data = seeded(perceptron), seeded(perceptron), examples()
    inputs, targets = data.batch(slice(None), torch.device("cpu"))
    corrections = [*repeat(Distance(start_of(model), 0.7), term), Smoothed()]
    training = LocalTraining(optimizer=partial(SGD, lr=0.1), local_epochs=3, batch_size=None)
    metrics = training(model, data, Classification(), server_round=1, seed=SEED, corrections=corrections)
    start, optimizer, losses = copy.deepcopy(plain), SGD(plain.parameters(), lr=0.1), []
    for _ in range(3):
        optimizer.zero_grad()
        outputs = plain(inputs)
        losses.append(nn.functional.cross_entropy(outputs, targets).item())
        loss = nn.functional.cross_entropy(outputs, targets, label_smoothing=0.2)
        squares = [
            (p - w).square().sum() for p, w in zip(plain.parameters(), start.parameters(), strict=True)
        ]
        (loss + term * 0.35 * torch.stack(squares).sum()).backward()
        optimizer.step()
    for a, b in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)
    assert metrics["loss"] == pytest.approx(sum(losses) / 3, rel=1e-6)


LISTS = {  # what a step's gradients are turned into, and what is said of that
    "too few": (lambda gradients: gradients[1:], "returns 3 gradients: expected a list of 4 tensors"),
    "too many": (lambda gradients: [*gradients, gradients[0]], "returns 5 gradients: expected a list of 4"),
    "one tensor": (
        lambda gradients: torch.cat([g.flatten() for g in gradients]),
        r"returns a tensor of shape \[\d+\] for gradients: expected a list of 4 tensors, one for each",
    ),
    "a generator": (lambda gradients: (g for g in gradients), "returns a generator for gradients"),
    "numbers": (lambda gradients: [0.0] * 4, "returns a float as gradient 0: expected a list of 4 tensors"),
    "other shapes": (
        lambda gradients: [g.unsqueeze(0) for g in gradients],
        r"returns a tensor of shape \[1, .*\] as gradient 0: .*, one for each trained parameter and shaped",
    ),
}
RETURNS = {
    "nothing": (lambda gradients, sums: None, "returns None: expected a pair, the gradients and the sums"),
    "no sums": (lambda gradients, sums: gradients, "returns a tuple: expected a pair"),
    "sums that are none": (lambda gradients, sums: (gradients, 1.0), "returns a tuple: expected a pair"),
}


class Wrapped(Correction):
    """Its step returns what ``change`` makes of a step's gradients and sums."""

    def __init__(self, change: Callable[..., object]) -> None:
        self.change = change

    def wrap_gradient(self, step: Step) -> Step:
        return lambda *given: self.change(*step(*given))  # type: ignore[return-value]


class Transformed(Correction):
    def __init__(self, change: Callable[[Sequence[Tensor]], Any]) -> None:
        self.gradient_transform = GradientTransform(lambda gradients, _: change(gradients), [])


class Bare(Correction):
    def wrap_gradient(self, step: Step) -> Step:
        """Forget to return a function."""
        return None  # type: ignore[return-value]


class Termless(Correction):
    def loss_term(self, model: nn.Module, inputs: Tensor, outputs: Tensor, targets: Tensor) -> Tensor:
        return None  # type: ignore[return-value]


@pytest.mark.parametrize("name", LISTS)
def test_gradients_that_are_none_are_named_with_their_correction(name: str) -> None:
    change, line = LISTS[name]
    with pytest.raises(ValueError, match=rf"Wrapped\.wrap_gradient's function {line}"):
        trained(Wrapped(lambda gradients, sums: (change(gradients), sums)))
    with pytest.raises(ValueError, match=rf"Transformed\.gradient_transform {line}"):
        trained(Transformed(change))
    batched = GradientPipeline([Transformed(change).gradient_transform])  # type: ignore[list-item]
    values = [p.detach() for p in perceptron().parameters()]
    with pytest.raises(ValueError, match=f"gradient_transform Transformed.*{line}"):
        batched(values, values)


@pytest.mark.parametrize("name", RETURNS)
def test_so_is_a_step_that_returns_no_pair(name: str) -> None:
    change, line = RETURNS[name]
    with pytest.raises(ValueError, match=rf"Wrapped\.wrap_gradient's function {line}"):
        trained(Wrapped(change))


def test_so_is_a_hook_that_returns_nothing() -> None:
    with pytest.raises(
        ValueError, match=r"Bare\.wrap_gradient returns no function: expected one that does"
    ):
        trained(Bare())
    with pytest.raises(ValueError, match=r"Termless\.loss_term returns None: expected one number"):
        trained(Termless())


@pytest.mark.parametrize("records", [None, {"mine": torch.zeros(2)}], ids=["nothing", "tensors"])
def test_so_are_records_that_are_none(records: object) -> None:
    kind = type("Mine", (Smoothed,), {"config_key": "mine", "on_round_end": lambda *_: records})
    model, training = seeded(perceptron), LocalTraining(optimizer=partial(SGD, lr=0.1))
    node = Node(model, training, Classification(), examples(), examples(), known_corrections=(kind,))
    config = ConfigRecord({"server-round": 1, "mine": True})
    content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "config": config})
    become_server()
    message = Message(content, dst_node_id=1, message_type="train")
    context = Context(1, 1, {"partition-id": 0}, RecordDict(), {})
    with pytest.raises(ValueError, match=r"Mine\.on_round_end returns a?.*: expected ArrayRecords by name"):
        ClientRound(node, message, context).run()


def test_two_losses_in_place_of_the_tasks_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"client\.corrections=\[Smoothed, Smoothed\] each replace the loss"
    ):
        trained(Smoothed(), Smoothed())
    both = {"one": Smoothed, "other": Smoothed}
    with pytest.raises(ValueError, match=r"client\.corrections=\[one, other\] each replace the loss"):
        LocalTraining(optimizer=partial(SGD, lr=0.1), corrections=both)


def test_a_body_trains_for_the_loss_in_place_of_the_tasks() -> None:
    """FedRep's, and Per-FedAvg's, which differentiates it twice."""
    for personal, private in ((FedRep(1), ["last"]), (PerFedAvg(0.1), [])):
        models = [seeded(perceptron) for _ in range(2)]
        for model, corrections in zip(models, ([], [Smoothed()]), strict=True):
            training = LocalTraining(optimizer=partial(SGD, lr=0.1), private=private, personal=personal)
            training(
                model, examples(), Classification(), server_round=1, seed=SEED, corrections=corrections
            )
        assert not torch.allclose(models[0][0].weight, models[1][0].weight, rtol=1e-3)
