"""SCAFFOLD, server and node together, on quadratics whose optimum is known."""

import numpy as np
import pytest
import torch
from federation import Federation, assert_same, play, record
from flwr.app import ArrayRecord, Context, Message, RecordDict
from torch import Tensor, nn

from baselines.runtimes.inline import InlineGrid
from clients import Examples, LeastSquares, LocalTraining, Node, client_app
from strategies import Constant, FedAvg, Scaffold, Uniform

# F_k(w) = 0.5 h_k (w - t_k)^2 per coordinate j: a row sqrt(h) e_j with target sqrt(h) t_j for each j.
CURVATURES = torch.tensor([[1.0, 4.0], [6.0, 0.5], [2.0, 2.0]], dtype=torch.float64)
TARGETS = torch.tensor([[1.0, -2.0], [5.0, 3.0], [-4.0, 0.0]], dtype=torch.float64)
OPTIMUM = (CURVATURES * TARGETS).sum(0) / CURVATURES.sum(0)
RATE, STEPS = 0.1, 8


class Point(nn.Module):
    """x w for w [2, 1]."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(2, 1, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.w


def training(**changes: object) -> LocalTraining:
    def sgd(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=RATE)

    settings: dict[str, object] = {"optimizer": sgd, "local_epochs": None, "local_steps": STEPS}
    return LocalTraining(**{**settings, "batch_size": None, **changes})  # type: ignore[arg-type]


def quadratics() -> InlineGrid:
    model = Point()

    def node(message: Message, context: Context) -> Node:
        k = int(context.node_config["partition-id"])
        roots = CURVATURES[k].sqrt()
        examples = Examples(torch.diag(roots), (roots * TARGETS[k])[:, None], torch.arange(2))
        return Node(model, training(), LeastSquares(2), examples, examples)

    return InlineGrid(client_app(node), len(TARGETS))


def start() -> ArrayRecord:
    return ArrayRecord(Point().state_dict())


def reached(strategy: FedAvg | Scaffold, rounds: int) -> np.ndarray:
    return play(strategy, quadratics(), start(), range(1, rounds + 1))[-1][0]["w"].numpy()[:, 0]


@pytest.mark.parametrize("option", [1, 2])
def test_reaches_the_optimum_that_fedavg_misses(option: int) -> None:
    fedavg = reached(FedAvg(weighting=Uniform()), 400)
    scaffold = reached(Scaffold(option=option), 400)
    assert np.abs(fedavg - OPTIMUM.numpy()).max() > 0.05
    np.testing.assert_allclose(scaffold, OPTIMUM.numpy(), atol=1e-9)


def test_first_round_is_fedavg() -> None:
    (fedavg, _), (scaffold, _) = (
        play(strategy, quadratics(), start())[0] for strategy in (FedAvg(weighting=Uniform()), Scaffold())
    )
    assert_same(fedavg, scaffold)


def by_hand(rounds: int, option: int) -> Tensor:
    """Return w after so many rounds of Algorithm 1, written out in plain arithmetic."""
    w, c = torch.zeros(2, dtype=torch.float64), torch.zeros(2, dtype=torch.float64)
    own = torch.zeros(3, 2, dtype=torch.float64)
    for _ in range(rounds):
        ends, renewed = [], []
        for k in range(3):
            y = w.clone()
            for _ in range(STEPS):
                y = y - RATE * (CURVATURES[k] * (y - TARGETS[k]) - own[k] + c)
            ends.append(y)
            at_start = CURVATURES[k] * (w - TARGETS[k])
            renewed.append(at_start if option == 1 else own[k] - c + (w - y) / (STEPS * RATE))
        c = c + (torch.stack(renewed) - own).mean(0)
        own = torch.stack(renewed)
        w = torch.stack(ends).mean(0)
    return w


@pytest.mark.parametrize("option", [1, 2])
def test_three_rounds_by_hand(option: int) -> None:
    np.testing.assert_allclose(reached(Scaffold(option=option), 3), by_hand(3, option), rtol=1e-12)


def test_partial_participation_moves_the_server_variate_by_its_share() -> None:
    strategy = Scaffold(nodes_per_round=1, num_nodes=3)
    grid = quadratics()
    play(strategy, grid, start())
    (k,) = strategy._asked
    change = grid._context(k + 2).state.array_records["control"]["w"].numpy()[:, 0]  # c_k, from 0
    assert np.abs(change).max() > 0.1
    np.testing.assert_allclose(strategy.state_dict()["control"].numpy(), change / 3, rtol=1e-12)


def test_a_restored_strategy_goes_on() -> None:
    grid = quadratics()
    first = Scaffold(step_size=Constant(0.5))
    middle = play(first, grid, start(), range(1, 4))[-1][0]
    second = Scaffold(step_size=Constant(0.5))
    second.load_state_dict(first.state_dict())
    states = {node: RecordDict(dict(grid._context(node).state)) for node in grid.get_node_ids()}
    expected = play(first, grid, middle, range(4, 7))[-1][0]
    for node, state in states.items():
        grid._context(node).state = state
    assert_same(play(second, grid, middle, range(4, 7))[-1][0], expected)


def test_nodes_without_control_are_left_out_by_name(caplog: pytest.LogCaptureFixture) -> None:
    from federation import answer, sent_model

    grid = Federation(lambda _, content: answer(sent_model(content)), 2)
    ((_, metrics),) = play(Scaffold(), grid, record({"w": np.zeros(3)}))
    assert metrics["failed"] == 2
    assert "sent no 'control' record" in caplog.text


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(ValueError, match="option=3"):
        Scaffold(option=3)
