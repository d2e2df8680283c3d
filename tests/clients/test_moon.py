"""MOON's term: worked out by hand, its reduction, and what it leaves behind."""

import math
from functools import partial

import pytest
import torch
from flwr.app import Array, ArrayRecord, RecordDict
from torch import nn
from torch.optim import SGD

from clients import Classification, LocalTraining, Moon, RoundStart
from helpers.plain_loop import assert_equal, examples, perceptron, seeded


def start_of(model: nn.Module, last: nn.Module | None = None) -> RoundStart:
    state = RecordDict()
    if last is not None:
        state["moon"] = ArrayRecord({k: Array(v.numpy().copy()) for k, v in last.state_dict().items()})
    return RoundStart(
        model, examples(), Classification(), partial(SGD, lr=0.1), 1, None, RecordDict(), state, 0
    )


def turning(weights: list[list[float]]) -> nn.Module:
    """Return a model whose representation of x is a matrix times x."""
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2))
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor(weights))
    return model


def test_the_term_by_hand() -> None:
    """Of x = (1, 0): z = z_glob = (1, 0), z_prev = (0, 1): 2 log(1 + e^-2) at tau = 0.5 and mu = 2.

    Of z = (0, 1) later it is 2 log(1 + e^2).
    """
    model, last = turning([[1.0, 0.0], [0.0, 1.0]]), turning([[0.0, 1.0], [1.0, 0.0]])
    start, x, y = start_of(model, last), torch.tensor([[1.0, 0.0]]), torch.tensor([0])
    term = Moon(start, mu=2, temperature=0.5)
    assert term.loss_term(model, x, model(x), y).item() == pytest.approx(2 * math.log1p(math.exp(-2)))
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[0.0, 0.0], [1.0, 0.0]]))
    assert term.loss_term(model, x, model(x), y).item() == pytest.approx(2 * math.log1p(math.exp(2)))


def trained(mu: float | None, last: nn.Module | None) -> tuple[nn.Module, RecordDict]:
    model = seeded(perceptron)
    training = LocalTraining(optimizer=partial(SGD, lr=0.1), local_epochs=2, batch_size=16)
    start = start_of(model, last)
    terms = [] if mu is None else [Moon(start, mu=mu)]
    training(model, examples(), Classification(), server_round=1, seed=3, corrections=terms)
    for term in terms:
        term.on_round_end([], {})
    return model, start.state


def test_without_strength_or_a_last_model_it_is_fedavg() -> None:
    torch.manual_seed(8)
    last = perceptron()
    plain, _ = trained(None, None)
    assert_equal(trained(0.0, last)[0], plain)
    assert_equal(trained(5.0, None)[0], plain)
    assert not torch.equal(trained(5.0, last)[0][0].weight, plain[0].weight)


def test_the_model_is_kept_for_the_next_round_and_nothing_stays_on_it() -> None:
    model, state = trained(5.0, perceptron())
    for name, value in model.state_dict().items():
        assert (state.array_records["moon"][name].numpy() == value.numpy()).all()
    assert not any(layer._forward_pre_hooks for layer in model.modules())


@pytest.mark.parametrize(("given", "named"), [({"mu": -1}, "mu"), ({"temperature": 0}, "temperature")])
def test_what_is_out_of_range_is_refused(given: dict[str, float], named: str) -> None:
    with pytest.raises(ValueError, match=rf"moon\.{named}=.* is out of range"):
        Moon(start_of(perceptron()), **given)


def test_a_model_without_a_linear_layer_is_refused_from_the_first_round_on() -> None:
    with pytest.raises(ValueError, match="needs a model with a linear layer"):
        Moon(start_of(nn.Conv2d(1, 1, 1)))
