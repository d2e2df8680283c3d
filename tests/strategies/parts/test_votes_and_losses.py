"""signSGD's majority vote and q-FedAvg: by hand, beside NumPy, and as FedAvg."""

import numpy as np
import pytest
from flwr.app import ArrayRecord, RecordDict

from helpers.federation import Federation, Model, answer, assert_same, model_in, play, record
from strategies import (
    AgreementMask,
    ByExamples,
    CentralPrivacy,
    Constant,
    EffectiveRank,
    Extrapolated,
    Fair,
    FedAvg,
    LocalPrivacy,
    PseudoGradientStrategy,
    QFedAvg,
    SignSGD,
    TooManyFailedRounds,
    Uniform,
)
from strategies.parts import layout

ENDS = np.array([[1.0, -2.0, 0.0, 5.0], [3.0, 4.0, 0.0, -5.0], [-9.0, 1.0, 2.0, 0.0]])
LOSSES, RATE = (0.5, 2.0, 1.0), 0.1


def nodes(
    ends: np.ndarray = ENDS, losses: tuple[float, ...] | None = LOSSES, rate: float = RATE
) -> Federation:
    def node(partition_id: int, content: RecordDict) -> RecordDict:
        metrics = {} if losses is None else {"start-loss": losses[partition_id], "learning-rate": rate}
        model: Model = {"w": ends[partition_id], "running_mean": np.array([float(partition_id**2)])}
        return answer(model, partition_id + 1, **metrics)

    return Federation(node, len(ends))


def after(strategy: PseudoGradientStrategy, grid: Federation, rounds: int = 1) -> ArrayRecord:
    start = record({"w": np.zeros(ENDS.shape[1]), "running_mean": np.zeros(1)})
    return play(strategy, grid, start, range(1, rounds + 1))[-1][0]


def w(model: ArrayRecord) -> list[float]:
    weights: list[float] = model_in(model)["w"].tolist()
    return weights


# ---- majority vote -------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [layout.CPU_BLOCK_COLUMNS, 3])
def test_a_vote_by_hand(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of three to the right, the same, one of one, and a tie; buffers take the median of 0, 1, 4."""
    monkeypatch.setattr(layout, "CPU_BLOCK_COLUMNS", size)
    actual = after(SignSGD(step_size=Constant(0.25)), nodes())
    assert w(actual) == [0.25, 0.25, 0.25, 0.0]
    assert model_in(actual)["running_mean"].tolist() == [1.0]


def test_a_minority_can_send_anything() -> None:
    hostile = ENDS.copy()
    hostile[2] = [1e300, -1e300, 1e300, -1e300]
    assert np.abs(w(after(SignSGD(step_size=Constant(0.25)), nodes(hostile)))).max() == 0.25


def test_steps_of_one_size_to_the_same_sides_are_fedavg() -> None:
    same = np.array([[0.5, -0.5, 0.0, 0.5]] * 3)
    vote, mean = after(SignSGD(step_size=Constant(0.5)), nodes(same)), after(FedAvg(), nodes(same))
    np.testing.assert_allclose(w(vote), w(mean), rtol=1e-15)


def test_a_masked_vote() -> None:
    """A = 1/3, 1/3, 1/3, 0."""
    actual = after(SignSGD(step_size=Constant(0.25), mask=AgreementMask(0.5)), nodes())
    assert w(actual) == pytest.approx([0.25 / 3] * 3 + [0], rel=1e-12)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"weighting": ByExamples()}, "MajorityVote gives every node the same weight"),
        ({"step_size": Extrapolated()}, "MajorityVote tolerates hostile nodes"),
        ({"privacy": CentralPrivacy()}, "privacy would not hold: aggregation=MajorityVote"),
    ],
)
def test_what_a_vote_does_not_go_with(given: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SignSGD(**given)  # type: ignore[arg-type]


# ---- q-FedAvg ------------------------------------------------------------------------------------


def as_printed(q: float, lipschitz: float, counts: tuple[float, ...] = (1, 1, 1)) -> np.ndarray:
    """Return the paper's w[t+1] from w[t] = 0: Algorithm 2, line by line."""
    total, scale = np.zeros(ENDS.shape[1]), 0.0
    for end, start_loss, count in zip(ENDS, LOSSES, counts, strict=True):
        loss, update = start_loss + 1e-10, lipschitz * (0 - end)
        total += count * loss**q * update
        scale += count * (q * loss ** (q - 1) * (update**2).sum() + lipschitz * loss**q)
    return 0 - total / scale


def test_fair_by_hand() -> None:
    """One coordinate, q = 1, L = 2: D = (1 * 1 + 3 * 2) 2, h = (4 * 1 + 2 * 1) + (4 * 4 + 2 * 3)."""
    ends = np.array([[1.0, 0, 0, 0], [2.0, 0, 0, 0]])
    actual = after(QFedAvg(aggregation=Fair(1.0, 2.0)), nodes(ends, (1, 3)))
    assert w(actual) == pytest.approx([14 / 28, 0, 0, 0], rel=1e-9)


@pytest.mark.parametrize("q", [0.1, 1.0, 2.0, 5.0])
@pytest.mark.parametrize("lipschitz", [None, 3.0])
def test_fair_as_printed(q: float, lipschitz: float | None) -> None:
    actual = after(QFedAvg(aggregation=Fair(q, lipschitz)), nodes())
    np.testing.assert_allclose(w(actual), as_printed(q, lipschitz or 1 / RATE), rtol=1e-12)
    shares = np.array(LOSSES) ** q
    expected = (shares * [0, 1, 4]).sum() / shares.sum()
    assert model_in(actual)["running_mean"].tolist() == pytest.approx([expected], rel=1e-8)


def test_fair_by_examples() -> None:
    actual = after(QFedAvg(aggregation=Fair(2.0), weighting=ByExamples()), nodes())
    np.testing.assert_allclose(w(actual), as_printed(2.0, 1 / RATE, (1, 2, 3)), rtol=1e-12)


@pytest.mark.parametrize("weighting", [Uniform(), ByExamples()], ids=["uniform", "examples"])
def test_q_of_zero_is_fedavg_bit_for_bit(weighting: Uniform | ByExamples) -> None:
    fair = after(QFedAvg(aggregation=Fair(0.0), weighting=weighting), nodes(), rounds=3)
    assert_same(fair, after(FedAvg(weighting=weighting), nodes(), rounds=3))


@pytest.mark.parametrize("losses", [(0.0, 0.0, 0.0), (1e300, 1e-300, 1.0), (0.0, 1e308, 1e308)])
@pytest.mark.parametrize("q", [0.5, 40.0])
def test_losses_of_any_size_give_numbers(losses: tuple[float, ...], q: float) -> None:
    assert np.isfinite(w(after(QFedAvg(aggregation=Fair(q)), nodes(losses=losses)))).all()


def test_a_learning_rate_of_zero_moves_nothing() -> None:
    rest = nodes(np.zeros_like(ENDS), rate=0.0)
    assert w(after(QFedAvg(), rest)) == [0.0] * 4


def test_nodes_that_do_not_tell_end_the_run() -> None:
    start = record({"w": np.zeros(4), "running_mean": np.zeros(1)})
    with pytest.raises(TooManyFailedRounds, match=r"each of the 3 nodes .* sent no 'start-loss'"):
        play(QFedAvg(), nodes(losses=None), start)
    assert QFedAvg().train_config() == {"start-loss": True}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"weighting": EffectiveRank()}, "Fair weighs nodes by their loss, but weighting=EffectiveRank"),
        (
            {"step_size": Extrapolated()},
            "Fair sets the length of the step, and so does step_size=Extrapolated",
        ),
        ({"privacy": CentralPrivacy()}, "privacy would not hold: nodes also send 'start-loss'"),
        ({"privacy": LocalPrivacy()}, "privacy would not hold: nodes also send 'start-loss'"),
    ],
)
def test_what_fairness_does_not_go_with(given: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        QFedAvg(**given)  # type: ignore[arg-type]
