"""FedNova: by hand, on quadratics whose optimum is known, and with nodes that know nothing of it."""

from functools import partial

import numpy as np
import pytest
import torch
from flwr.app import Context, Message, RecordDict

from baselines.grids.inline import InlineGrid
from clients import EffectiveSteps, Examples, LeastSquares, LocalTraining, Node, client_app
from clients.app import check_training
from helpers.federation import Federation, answer, assert_same, model_in, play, record, sent_model
from helpers.quadratics import CURVATURES, OPTIMUM, TARGETS, Point, start
from strategies import (
    AgreementMask,
    Extrapolated,
    FedAvg,
    FedNova,
    LocalPrivacy,
    Normalized,
    PseudoGradientStrategy,
    Uniform,
    Updates,
)
from strategies.parts.layout import Layout
from strategies.shared import protocol

SIZES = (10, 30, 60)
POINTS = ([1.0, -2.0], [4.0, 0.0], [0.0, 8.0])


def nodes(*steps: float) -> Federation:
    """Return nodes that end at POINTS from any start, after so many effective steps."""

    def node(partition_id: int, content: RecordDict) -> RecordDict:
        metrics = {protocol.EFFECTIVE_STEPS: steps[partition_id]} if steps else {}
        return answer({"w": np.array(POINTS[partition_id])}, SIZES[partition_id], **metrics)

    return Federation(node, len(POINTS))


def moved(strategy: PseudoGradientStrategy, *steps: float) -> tuple[list[float], dict[str, float]]:
    ((new, metrics),) = play(strategy, nodes(*steps), record({"w": np.zeros(2)}))
    return model_in(new)["w"].tolist(), {k: float(v) for k, v in metrics.items()}  # type: ignore[arg-type]


def test_by_hand() -> None:
    """tau_eff = .1 * 2 + .3 * 4 + .6 * 8 = 6.2; sum p w / a = (.05 + .3, -.1 + .6) = (.35, .5)."""
    actual, metrics = moved(FedNova(), 2, 4, 8)
    assert actual == pytest.approx([6.2 * 0.35, 6.2 * 0.5], rel=1e-12)
    assert metrics["effective-steps"] == pytest.approx(6.2, rel=1e-12)  # their mean by examples


def test_uniform_weights_by_hand() -> None:
    """tau_eff = 14 / 3; sum w / a / 3 = (.5 + 1, -1 + 1) / 3."""
    actual, _ = moved(FedNova(weighting=Uniform()), 2, 4, 8)
    assert actual == pytest.approx([14 / 3 * 0.5, 0.0], rel=1e-12, abs=1e-12)


def test_step_size_and_mask_see_the_normalized_updates() -> None:
    """They are tau_eff / a = 3.1, 1.55 and 0.775 times (1, -2), (4, 0), (0, 8), with the sign of Delta."""
    ends = np.array(POINTS) * np.array([[3.1], [1.55], [0.775]])
    weights = np.array([0.1, 0.3, 0.6])
    mean = weights @ ends
    eta = max(1.0, weights @ (ends**2).sum(1) / 2 / (mean**2).sum())
    actual, metrics = moved(FedNova(step_size=Extrapolated(0.0)), 2, 4, 8)
    assert metrics["step-size"] == pytest.approx(eta, rel=1e-12)
    assert actual == pytest.approx(eta * mean, rel=1e-12)
    actual, _ = moved(FedNova(mask=AgreementMask(1.0)), 2, 4, 8)
    assert actual == pytest.approx(mean * [2 / 3, 0.0], rel=1e-12)


@pytest.mark.parametrize("steps", [1.0, 7.0, 188.5])
def test_equal_steps_are_fedavg_bit_for_bit(steps: float) -> None:
    one, other = (
        play(s, nodes(steps, steps, steps), record({"w": np.zeros(2)})) for s in (FedNova(), FedAvg())
    )
    assert_same(one[0][0], other[0][0])


def test_less_than_a_step_is_a_step() -> None:
    assert moved(FedNova(), 0, 1, 4)[0] == moved(FedNova(), 1, 1, 4)[0]


def test_weights_per_layer() -> None:
    """Each layer has a tau_eff of its own: 0.5 * 1 + 0.5 * 3 = 2, and 0.25 * 1 + 0.75 * 3 = 2.5."""
    layout = Layout.of(record({"a": np.zeros(1), "running_mean": np.zeros(1), "b": np.zeros(1)}))
    steps = {protocol.EFFECTIVE_STEPS: torch.tensor([1.0, 3.0], dtype=torch.float64)}
    rows = torch.tensor([[1.0, 2.0], [3.0, 6.0]], dtype=torch.float64)
    buffers = torch.tensor([[1.0], [5.0]], dtype=torch.float64)
    given = Updates(rows, buffers, torch.ones(2), (0, 1), layout, torch.zeros(2), steps)
    weights = torch.tensor([[0.5, 0.5, 0.25], [0.5, 0.5, 0.75]], dtype=torch.float64)
    mean, factors = Normalized().aggregate(given, weights, AgreementMask(0))
    assert factors is None
    assert mean.tolist() == pytest.approx([2 * (0.5 + 0.5), 2.5 * (0.5 + 1.5)], rel=1e-12)
    assert Normalized().aggregate_buffers(given, weights).tolist() == [3.0]  # as they came


# ---- with nodes of ours --------------------------------------------------------------------------

STEPS = (1, 4, 12)


def unequal(rate: float, **sgd: float) -> InlineGrid:
    """Return SCAFFOLD's quadratics, node k taking STEPS[k] steps."""
    model = Point()

    def node(message: Message, context: Context) -> Node:
        k = int(context.node_config["partition-id"])
        roots = CURVATURES[k].sqrt()
        examples = Examples(torch.diag(roots), (roots * TARGETS[k])[:, None], torch.arange(2))
        optimizer = partial(torch.optim.SGD, **{"lr": rate, **sgd})
        local = LocalTraining(optimizer=optimizer, local_epochs=None, local_steps=STEPS[k], batch_size=None)
        return Node(model, local, LeastSquares(2), examples, examples)

    return InlineGrid(client_app(node), len(STEPS))


def reached(strategy: PseudoGradientStrategy, rounds: int, rate: float, **sgd: float) -> np.ndarray:
    history = play(strategy, unequal(rate, **sgd), start(), range(1, rounds + 1))
    return history[-1][0]["w"].numpy()[:, 0]


@pytest.mark.parametrize("momentum", [0.0, 0.8])
def test_two_rounds_against_plain_arithmetic(momentum: float) -> None:
    w, rate = np.zeros(2), 0.05
    for _ in range(2):
        deltas, norms = [], []
        for k, steps in enumerate(STEPS):
            y, velocity = w.copy(), np.zeros(2)
            for _ in range(steps):
                velocity = momentum * velocity + CURVATURES[k].numpy() * (y - TARGETS[k].numpy())
                y = y - rate * velocity
            deltas.append(w - y)
            norms.append(sum((1 - momentum**left) / (1 - momentum) for left in range(1, steps + 1)))
        tau = np.mean(norms)
        w = w - tau * np.mean([d / a for d, a in zip(deltas, norms, strict=True)], axis=0)
    np.testing.assert_allclose(reached(FedNova(), 2, rate, momentum=momentum), w, rtol=1e-12)


@pytest.mark.slow
def test_comes_near_the_optimum_that_fedavg_misses() -> None:
    """With a small learning rate all that is left is the error of unequal work."""
    missed = np.abs(reached(FedAvg(), 1500, 0.002) - OPTIMUM.numpy()).max()
    actual = np.abs(reached(FedNova(), 1500, 0.002) - OPTIMUM.numpy()).max()
    assert missed > 0.5
    assert actual < 0.1 * missed


def test_nodes_that_do_not_tell_are_left_out_by_name(caplog: pytest.LogCaptureFixture) -> None:
    metrics_of_nodes = [{}, {"effective-steps": 2.0}]
    grid = Federation(lambda k, content: answer(sent_model(content), **metrics_of_nodes[k]), 2)
    ((_, metrics),) = play(FedNova(), grid, record({"w": np.zeros(3)}))
    assert metrics["failed"] == 1
    assert "sent no 'effective-steps'" in caplog.text


def test_nodes_are_asked_for_it_and_for_nothing_else() -> None:
    assert FedNova().train_config() == {protocol.EFFECTIVE_STEPS: True}
    assert FedAvg().train_config() == {}


def test_only_sgds_steps_can_be_counted() -> None:
    adam = LocalTraining(optimizer=partial(torch.optim.Adam, lr=0.1))
    with pytest.raises(ValueError, match=r"FedNova.*client\.optimizer is Adam: set client_optimizer=sgd"):
        check_training(adam, FedNova().train_config())
    with pytest.raises(ValueError, match="FedNova"):
        EffectiveSteps.check(adam.optimizer, {})


def test_a_private_node_tells_nothing_of_its_work() -> None:
    with pytest.raises(ValueError, match="privacy would not hold: nodes also send 'effective-steps'"):
        FedNova(weighting=Uniform(), privacy=LocalPrivacy())
