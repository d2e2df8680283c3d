"""Keep-trace steps: a quadratic by hand, autograd beside it, and the reductions."""

from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD, Adam

from clients import (
    Classification,
    Ditto,
    Examples,
    GradientVariance,
    KeepTrace,
    LeastSquares,
    LocalTraining,
)
from helpers.plain_loop import SEED, assert_equal, examples, perceptron, seeded
from helpers.runs import curve, launch, played

POINT = Examples(torch.ones(1, 1), torch.ones(1, 1), torch.arange(1))  # L(w) = (w - 1)^2 / 2


def line(at: float) -> nn.Linear:
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, at)
    return model


@pytest.mark.parametrize(("steps", "end"), [(1, 2.0), (2, 2.75), (3, 2.9375)])
def test_a_quadratic_by_hand(steps: int, end: float) -> None:
    """v - 1 is halved by each step at the rate 1/2, and so is its derivative by w_t: from 2 to 2 - g / 2.

    With s steps g = (1/4)^(s-1) (w_t - 1), which is 2, 1/2 and 1/8 at w_t = 3.
    """
    model = line(3.0)
    training = KeepTrace(optimizer=partial(SGD, lr=0.5), local_epochs=None, local_steps=steps)
    metrics = training(model, POINT, LeastSquares(1), server_round=1, seed=0)
    assert model.weight.item() == end
    assert metrics["local-steps"] == steps


def test_two_epochs_beside_autograd() -> None:
    """Seven batches are traced, in the order of the local loop; the last gradient is of all examples."""
    data, lr = examples(), 0.3
    model, plain = seeded(perceptron), seeded(perceptron)
    training = KeepTrace(optimizer=partial(SGD, lr=lr), local_epochs=2, batch_size=8)
    metrics = training(model, data, Classification(), server_round=1, seed=SEED)

    def loss(values: list[torch.Tensor], rows: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(data.inputs[rows] @ values[0].T + values[1])
        return cross_entropy(hidden @ values[2].T + values[3], data.targets[rows])

    start = [p.detach().clone().requires_grad_() for p in plain.parameters()]
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(SEED))
    values, losses = start, []
    for rows in data.index[order].split(8):
        losses.append((loss(values, rows), len(rows)))
        slopes = torch.autograd.grad(losses[-1][0], values, create_graph=True)
        values = [v - lr * g for v, g in zip(values, slopes, strict=True)]
    losses.append((loss(values, data.index), len(data)))
    for p, w, g in zip(model.parameters(), start, torch.autograd.grad(losses[-1][0], start), strict=True):
        torch.testing.assert_close(p, w - lr * g, rtol=1e-5, atol=1e-6)
    assert metrics["local-steps"] == 8
    assert metrics["loss"] == pytest.approx(sum(v.item() * n for v, n in losses) / 100, rel=1e-5)


@pytest.mark.parametrize("batch_size", [None, 8])
def test_one_epoch_is_fedsgd_bit_for_bit(batch_size: int | None) -> None:
    model, plain, data = seeded(perceptron), seeded(perceptron), examples()
    KeepTrace(optimizer=partial(SGD, lr=0.1), local_epochs=1, batch_size=batch_size)(
        model, data, Classification(), server_round=1, seed=SEED
    )
    LocalTraining(optimizer=partial(SGD, lr=0.1), local_epochs=None, local_steps=1, batch_size=None)(
        plain, data, Classification(), server_round=1, seed=SEED
    )
    assert_equal(model, plain)


@pytest.mark.parametrize(
    "optimizer",
    [partial(Adam, lr=0.1), partial(SGD, lr=0.1, momentum=0.9), partial(SGD, lr=0.1, weight_decay=0.1)],
    ids=["adam", "momentum", "decay"],
)
def test_only_plain_steps_are_traced(optimizer: partial) -> None:  # type: ignore[type-arg]
    with pytest.raises(ValueError, match=r"leave client\.optimizer at SGD with lr alone"):
        KeepTrace(optimizer=optimizer)


@pytest.mark.parametrize(
    "given",
    [
        {"keep_optimizer": True},
        {"max_grad_norm": 1.0},
        {"corrections": {"one": GradientVariance}},
        {"personal": Ditto()},
    ],
)
def test_what_would_be_no_part_of_the_trace_is_refused(given: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="client=keep_trace differentiates through plain gradient steps"):
        KeepTrace(optimizer=partial(SGD, lr=0.1), **given)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="takes no corrections"):
        KeepTrace(optimizer=partial(SGD, lr=0.1))(
            perceptron(),
            examples(),
            Classification(),
            server_round=1,
            seed=0,
            corrections=[GradientVariance()],
        )


SMALL = "dataset=digits num_nodes=4 model=softmax partitioner=iid seed=1"


@pytest.mark.parametrize(
    "option", ["strategy=scaffold", "compression=random_mask", "corrections=moon", "personal=ditto"]
)
def test_what_would_correct_its_steps_is_refused_in_one_line(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = f"{SMALL} client=keep_trace {option} hydra.run.dir={tmp_path}"
    assert launch(*words.split()) == 2
    error = capsys.readouterr().err
    assert "takes no corrections: choose a strategy that asks for none, such as fedavg or fedmeta" in error
    assert len(error.splitlines()) == 1


def test_one_epoch_on_digits_is_a_run_of_fedsgd(tmp_path: Path) -> None:
    one = "client.local_epochs=1 client.optimizer.lr=0.3 rounds=3"
    sgd = one.replace("client.local_epochs=1", "client.local_epochs=null client.local_steps=1")
    traced = played(f"{SMALL} client=keep_trace {one}", tmp_path / "traced")
    assert traced.equals(played(f"{SMALL} {sgd} client.batch_size=null", tmp_path / "sgd"))


def test_the_paper_s_pair_learns_on_digits(tmp_path: Path) -> None:
    both = "client=keep_trace strategy=fedmeta strategy.meta_rate=0.05 validation_size=100"
    rows = played(f"{SMALL} {both} rounds=15 client.optimizer.lr=0.3 step_size.eta=2", tmp_path)
    accuracy = curve(rows, "test", "accuracy")
    assert accuracy[0] < 0.3
    assert accuracy[-1] > 0.85
