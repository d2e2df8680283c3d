"""SCAFFOLD, server and node together, on quadratics whose optimum is known."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message
from torch import Tensor, nn

from baselines.grids.inline import InlineGrid
from clients import Examples, LeastSquares, Node, client_app
from clients.methods.scaffold import NEEDS_SGD, gradient_weight
from helpers.federation import Federation, assert_same, play, record
from helpers.quadratics import (
    CURVATURES,
    OPTIMUM,
    RATE,
    STEPS,
    TARGETS,
    Point,
    quadratics,
    reached,
    start,
    training,
)
from helpers.server_data import Functions
from strategies import FedAvg, LocalOnly, Scaffold, SelectiveFedAvg, Uniform
from strategies.shared import client_state


@pytest.mark.slow
@pytest.mark.parametrize("sgd", [{}, {"momentum": 0.9, "lr": 0.02}], ids=["plain", "momentum"])
@pytest.mark.parametrize("option", [1, 2])
def test_reaches_the_optimum_that_fedavg_misses(option: int, sgd: dict[str, float]) -> None:
    fedavg = reached(FedAvg(weighting=Uniform()), 400, **sgd)
    scaffold = reached(Scaffold(option=option), 400, **sgd)
    assert np.abs(fedavg - OPTIMUM.numpy()).max() > 0.05
    np.testing.assert_allclose(scaffold, OPTIMUM.numpy(), atol=1e-9)


@pytest.mark.parametrize("option", [1, 2])
def test_clipped_steps_reach_it_as_well(option: int) -> None:
    actual = reached(Scaffold(option=option), 600, clip=0.5)
    np.testing.assert_allclose(actual, OPTIMUM.numpy(), atol=1e-9)


def test_first_round_is_fedavg() -> None:
    (fedavg, _), (scaffold, _) = (
        play(strategy, quadratics(), start())[0] for strategy in (FedAvg(weighting=Uniform()), Scaffold())
    )
    assert_same(fedavg, scaffold)


def by_hand(rounds: int, option: int, momentum: float) -> Tensor:
    """Return w after so many rounds of Algorithm 1, written out in plain arithmetic.

    Option 2 as a mean of the uncorrected gradients, each weighted by how much of it the steps after it
    still carry.
    """
    carried = torch.tensor(
        [sum(momentum**later for later in range(STEPS - step)) for step in range(STEPS)],
        dtype=torch.float64,
    )
    w, c = torch.zeros(2, dtype=torch.float64), torch.zeros(2, dtype=torch.float64)
    own = torch.zeros(3, 2, dtype=torch.float64)
    for _ in range(rounds):
        ends, renewed = [], []
        for k in range(3):
            y, velocity, gradients = w.clone(), torch.zeros(2, dtype=torch.float64), []
            for _ in range(STEPS):
                gradients.append(CURVATURES[k] * (y - TARGETS[k]))
                velocity = momentum * velocity + gradients[-1] - own[k] + c
                y = y - RATE * velocity
            ends.append(y)
            mean = (carried[:, None] * torch.stack(gradients)).sum(0) / carried.sum()
            renewed.append(gradients[0] if option == 1 else mean)
        c = c + (torch.stack(renewed) - own).mean(0)
        own = torch.stack(renewed)
        w = torch.stack(ends).mean(0)
    return w


@pytest.mark.parametrize("momentum", [0, 0.5, 0.9])
@pytest.mark.parametrize("option", [1, 2])
def test_three_rounds_by_hand(option: int, momentum: float) -> None:
    actual = reached(Scaffold(option=option), 3, momentum=momentum)
    np.testing.assert_allclose(actual, by_hand(3, option, momentum), rtol=1e-12)


@pytest.mark.parametrize(
    "sgd",
    [
        {},
        {"momentum": 0.9},
        {"momentum": 0.9, "nesterov": True},
        {"momentum": 0.5, "dampening": 0.3},
        {"dampening": 0.3},
    ],
    ids=str,
)
@pytest.mark.parametrize("steps", [1, 2, 50])
def test_the_weight_is_how_far_a_gradient_of_one_moves(sgd: dict[str, float], steps: int) -> None:
    p = nn.Parameter(torch.zeros(1, dtype=torch.float64))
    optimizer = torch.optim.SGD([p], lr=1.0, **sgd)  # type: ignore[arg-type]
    for _ in range(steps):
        p.grad = torch.ones_like(p)
        optimizer.step()
    assert gradient_weight(training(**sgd).optimizer, steps, *NEEDS_SGD) == pytest.approx(
        -p.item(), rel=1e-12
    )


def test_the_weight_of_momentum_is_fednovas() -> None:
    """Wang et al., NeurIPS 2020, section 4: |a|_1 = (tau - rho (1 - rho^tau) / (1 - rho)) / (1 - rho)."""
    expected = (188 - 0.9 * (1 - 0.9**188) / 0.1) / 0.1
    assert gradient_weight(training(momentum=0.9).optimizer, 188, *NEEDS_SGD) == pytest.approx(
        expected, rel=1e-12
    )
    assert gradient_weight(training().optimizer, 188, *NEEDS_SGD) == 188


def test_partial_participation_moves_the_server_variate_by_its_share() -> None:
    strategy = Scaffold(nodes_per_round=1, num_nodes=3)
    grid = quadratics()
    play(strategy, grid, start())
    (k,) = strategy._recipients
    change = grid.context(k + 2).state.array_records["control"]["w"].numpy()[:, 0]  # c_k, from 0
    assert np.abs(change).max() > 0.1
    np.testing.assert_allclose(strategy.state_dict()["server_vector"].numpy(), change, rtol=1e-12)


Losing = Callable[[int, list[Message]], list[Message]]  # what arrives of a round's replies


def diverged(reply: Message) -> Message:
    reply.content.array_records["arrays"]["w"] = Array(np.full((2, 1), np.nan))
    return reply


LOST: dict[str, tuple[Scaffold, Losing]] = {
    "late in one round": (Scaffold(), lambda r, replies: replies[1:] if r == 2 else replies),
    "late in the first": (Scaffold(), lambda r, replies: replies[1:] if r == 1 else replies),
    "late in two": (Scaffold(), lambda r, replies: replies[1:] if r in (2, 3) else replies),
    "late in turn": (Scaffold(), lambda r, replies: replies[:r] + replies[r + 1 :]),
    "a round that failed": (Scaffold(min_replies=3), lambda r, replies: replies[1:] if r == 2 else replies),
    "diverged": (
        Scaffold(),
        lambda r, replies: [diverged(replies[0]), *replies[1:]] if r == 4 else replies,
    ),
    "option 1": (Scaffold(option=1), lambda r, replies: replies[1:] if r == 5 else replies),
}


def own_variates(grid: InlineGrid, groups: Sequence[str] = ("",) * 3) -> np.ndarray:
    """Return c_k, [nodes, 2], each of the node's group."""
    nodes = zip(grid.get_node_ids(), groups, strict=True)
    states = [client_state.load(grid.context(node).state, group) for node, group in nodes]
    return np.stack([state.array_records["control"]["w"].numpy()[:, 0] for state in states])


@pytest.mark.parametrize(("strategy", "arrive"), LOST.values(), ids=LOST)
def test_after_a_lost_reply_c_is_the_mean_of_all_c_k(strategy: Scaffold, arrive: Losing) -> None:
    """Else the method ends beside the optimum, however many rounds follow."""
    grid, arrays = quadratics(), start()
    for server_round in range(1, 8):
        messages = strategy.configure_train(server_round, arrays, ConfigRecord(), grid)
        replies = arrive(server_round, list(grid.send_and_receive(messages)))
        arrays = strategy.aggregate_train(server_round, replies)[0] or arrays
    mean = own_variates(grid).mean(0)
    assert np.abs(mean).max() > 0.01
    np.testing.assert_allclose(strategy.state_dict()["server_vector"].numpy() / 3, mean, atol=1e-12)


def test_a_second_run_over_the_same_nodes_begins_at_zero() -> None:
    grid = quadratics()
    expected = play(Scaffold(), grid, start(), range(1, 6))
    again = play(Scaffold(), grid, start(), range(1, 6))
    assert_same(again[-1][0], expected[-1][0])


def test_in_groups_the_variate_is_the_mean_over_the_group() -> None:
    grid = quadratics()
    strategy = LocalOnly(inner=Scaffold(num_nodes=3))
    play(strategy, grid, start(), range(1, 4))
    variates = [each.state_dict()["server_vector"].numpy() for each in strategy._strategies.values()]
    np.testing.assert_allclose(variates, own_variates(grid, ["node0", "node1", "node2"]), atol=1e-12)


def test_one_group_after_local_training_is_scaffold() -> None:
    def correctness_fn(models: Sequence[ArrayRecord]) -> Tensor:
        return torch.ones(len(models), 4, dtype=torch.bool)

    alike = SelectiveFedAvg(
        inner=Scaffold(num_nodes=3), local_rounds=3, server_data=Functions(correctness_fn)
    )
    actual = play(alike, quadratics(), start(), range(1, 9))[-1][0]
    assert_same(actual, play(Scaffold(), quadratics(), start(), range(1, 6))[-1][0])


def test_a_node_that_comes_back_under_another_id_counts_once() -> None:
    strategy = Scaffold()
    strategy.registry.partition_of = {7: 0, 8: 1, 9: 1}
    assert strategy.population_size() == 2


class Half(Point):
    """A frozen parameter, and a floating-point buffer of no known name."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.Parameter(torch.ones(3, dtype=torch.float64), requires_grad=False)
        self.register_buffer("scale", torch.ones(1, dtype=torch.float64))


def test_what_is_not_trained_has_no_variate() -> None:
    model, identity = Half(), torch.eye(2, dtype=torch.float64)
    examples = Examples(identity, identity[:, :1], torch.arange(2))

    def node(message: Message, context: Context) -> Node:
        return Node(model, training(), LeastSquares(2), examples, examples)

    history = play(
        Scaffold(), InlineGrid(client_app(node), 2), ArrayRecord(model.state_dict()), range(1, 4)
    )
    assert [metrics["replies"] for _, metrics in history] == [2, 2, 2]


def test_nodes_without_control_are_left_out_by_name(caplog: pytest.LogCaptureFixture) -> None:
    from flwr.app import RecordDict

    from helpers.federation import answer, sent_model

    def node(partition_id: int, content: RecordDict) -> RecordDict:
        model = answer(sent_model(content))
        return RecordDict({**model, "control": content["control"]}) if partition_id else model

    ((_, metrics),) = play(Scaffold(), Federation(node, 2), record({"w": np.zeros(3)}))
    assert metrics["failed"] == 1
    assert "sent no 'control' record" in caplog.text


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(ValueError, match="option=3"):
        Scaffold(option=3)
