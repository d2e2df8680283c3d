"""SCAFFOLD on the node: c_k is renewed as the paper's Algorithm 1 says, and remembered round by round."""

from collections import OrderedDict
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, RecordDict
from torch import nn
from torch.optim import SGD, Adam, Optimizer

from clients import Classification, LocalTraining, RoundStart
from clients.methods.scaffold import NEEDS_SGD, ControlVariate, gradient_weight

START, END = (2.0, 3.0), (1.0, 3.6)
SERVER = (1.0, -2.0)


def record(*values: float) -> ArrayRecord:
    return ArrayRecord({"w": torch.tensor(values, dtype=torch.float64)})


def begun(
    named: dict[str, nn.Parameter],
    sent: ArrayRecord,
    state: RecordDict,
    rounds: tuple[int, int | None],
    renewal: Any,
) -> ControlVariate:
    """Begin a round; ``renewal`` is how many steps it has, or the gradient that c_k becomes."""
    server_round, counted = rounds
    config: dict[str, Any] = {"server-round": server_round, "control-option": 2}
    if counted is not None:
        config |= {"control-lost": [0], "control-counted": [counted]}
    content = RecordDict({"config": ConfigRecord(config), "control": sent})
    steps = renewal if isinstance(renewal, int) else 1
    start = RoundStart(
        model=nn.ParameterDict(OrderedDict(named)),  # of a plain dict it would sort the names
        examples=None,  # type: ignore[arg-type]
        task=Classification(),
        optimizer=partial(SGD, lr=0.25),
        steps=steps,
        batch_size=None,
        content=content,
        state=state,
        partition_id=0,
    )
    correction = ControlVariate(start)
    if not isinstance(renewal, int):
        correction.renewal = renewal
    return correction


def metrics(rate: float, renewal: Any) -> dict[str, float]:
    return {"learning-rate": rate, "local-steps": renewal if isinstance(renewal, int) else 1}


def trained(
    state: RecordDict, renewal: Any, server_round: int = 1, counted: int | None = None
) -> np.ndarray:
    """Play one round from START to END at the rate 0.25; return the change of c_k that is sent."""
    w = nn.Parameter(torch.tensor(START, dtype=torch.float64))
    correction = begun({"w": w}, record(*SERVER), state, (server_round, counted), renewal)
    with torch.no_grad():
        w.copy_(torch.tensor(END))
    return correction.on_round_end([w], metrics(0.25, renewal))["control"]["w"].numpy()


def own(state: RecordDict) -> list[float]:
    return state.array_records["control"]["w"].numpy().tolist()


def test_option_2_by_hand() -> None:
    """c_k+ = c_k - c + (w_t - y) / (steps eta_l): from c_k = 0, then from what that gave."""
    state = RecordDict()
    first = trained(state, renewal=4)
    assert first == pytest.approx([-1 + 1 / 1, 2 - 0.6 / 1])
    assert own(state) == pytest.approx([0, 1.4])
    second = trained(state, renewal=2, server_round=2)
    assert own(state) == pytest.approx([0 - 1 + 1 / 0.5, 1.4 + 2 - 0.6 / 0.5])
    assert second == pytest.approx([1, 2.2 - 1.4])


def test_without_a_step_there_is_nothing_to_learn_c_k_from() -> None:
    state = RecordDict({"control": record(0.5, 4)})
    start = {"w": nn.Parameter(torch.tensor(START, dtype=torch.float64))}
    correction = begun(start, record(*SERVER), state, (1, 0), 3)
    actual = correction.on_round_end(list(start.values()), metrics(0.0, 3))
    assert actual["control"]["w"].numpy().tolist() == [0, 0]
    assert own(state) == own(RecordDict({"control": correction._record(correction.own)}))


def test_option_1_is_the_gradient_that_is_given() -> None:
    state = RecordDict()
    assert trained(state, [torch.tensor([5.0, 7.0]).double()]).tolist() == [5, 7]
    assert trained(state, [torch.tensor([6.0, 5.0]).double()], server_round=2).tolist() == [1, -2]
    assert own(state) == [6, 5]


def test_the_gradient_is_shifted_by_c_less_c_k() -> None:
    state = RecordDict({"control": record(0.5, 4)})
    trained(state, [torch.tensor([0.5, 4.0]).double()])
    w = nn.Parameter(torch.tensor(START, dtype=torch.float64))
    still = nn.Parameter(torch.zeros(2, dtype=torch.float64))  # no gradient: nothing to shift
    both = ArrayRecord({"w": record(*SERVER)["w"], "still": record(3, 3)["w"]})
    named = {"w": w, "still": still}
    state["control"] = ArrayRecord({"w": record(0.5, 4)["w"], "still": record(0, 0)["w"]})
    correction = begun(named, both, state, (2, None), 1)
    w.grad = torch.tensor([10.0, 20.0]).double()
    correction.transform_gradients([w, still])
    assert w.grad.tolist() == [10 + 1 - 0.5, 20 - 2 - 4]
    assert still.grad is None


@pytest.mark.parametrize(
    ("counted", "expected"),
    [(None, 3), (3, 3), (2, 2), (1, 0), (0, 0)],
    ids=["all", "last", "one before", "older", "none"],
)
def test_a_change_that_the_server_has_not_counted_is_taken_back(
    counted: int | None, expected: float
) -> None:
    """The node goes on from the c_k that the server knows: the last, the one before, or 0."""
    state = RecordDict()
    for server_round in (1, 2, 3):  # c_k is (r, r) after round r
        trained(state, [torch.full((2,), float(server_round)).double()], server_round)
    change = trained(state, [torch.full((2,), 10.0).double()], 4, counted)
    assert change.tolist() == [10 - expected] * 2
    kept = state.config_records["control-rounds"]
    assert kept == {"control": 4, "control-before": expected}


def test_what_is_not_trained_is_sent_as_zeros() -> None:
    w = nn.Parameter(torch.zeros(2))
    sent = ArrayRecord({"frozen": torch.full((3,), 9.0), "w": torch.zeros(2)})
    correction = begun({"w": w}, sent, RecordDict(), (1, None), 1)
    changes = correction.on_round_end([w], metrics(1.0, 1))["control"]
    assert changes["frozen"].numpy().tolist() == [0, 0, 0]


def training(optimizer: type[Optimizer] = SGD, **settings: Any) -> LocalTraining:
    return LocalTraining(optimizer=partial(optimizer, lr=0.1, **settings))


@pytest.mark.parametrize(
    ("settings", "moved"),
    [
        ({}, (1, 1, 1)),
        ({"momentum": 0.5}, (1, 1.5, 1.75)),
        ({"momentum": 0.5, "dampening": 0.25}, (1, 1.25, 1.375)),  # v = 0.5 v + 0.75, the first is 1
        ({"momentum": 0.5, "dampening": 1}, (1, 0.5, 0.25)),  # the first gradient alone
        ({"momentum": 0.5, "nesterov": True}, (1.5, 1.75, 1.875)),  # 1 + 0.5 v
    ],
    ids=str,
)
def test_the_gradients_weight_by_hand(settings: dict[str, Any], moved: tuple[float, ...]) -> None:
    for steps in (1, 2, 3):
        assert gradient_weight(training(**settings).optimizer, steps, *NEEDS_SGD) == pytest.approx(
            sum(moved[:steps]), rel=1e-15
        )


def test_only_sgds_steps_are_sums_of_gradients() -> None:
    with pytest.raises(ValueError, match="is Adam: set"):
        gradient_weight(training(Adam).optimizer, 3, *NEEDS_SGD)


def test_option_2_alone_is_refused_before_the_first_round() -> None:
    config = {"control-option": 2}
    ControlVariate.check(training(momentum=0.5).optimizer, config)
    with pytest.raises(ValueError, match="is Adam: set"):
        ControlVariate.check(training(Adam).optimizer, config)
    ControlVariate.check(training(Adam).optimizer, {"control-option": 1})
