"""FedLARS, FedLAMB: a hand vector, plain loops, reductions, and what layers have to do with it."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, RecordDict

from helpers.federation import Federation, answer, assert_same, model_in, play, record, round_of, sent_model
from strategies import LAMB, LARS, Adam, AgreementMask, Constant, FedAdam, FedAvg, FedLAMB, FedLARS, NoMask
from strategies.core.pseudo_gradient import PseudoGradientStrategy
from strategies.parts.layout import Layout

Model = dict[str, np.ndarray]
NODES, ROUNDS, ETA = 3, 4, 0.5
SHAPES = {"a.weight": (4, 3), "a.bias": (4,), "bn.running_mean": (4,), "b.weight": (2, 4)}


def start(scale: float = 1.0) -> Model:
    draws = np.random.default_rng(0)
    model = {name: scale * draws.normal(size=shape) for name, shape in SHAPES.items()}
    return model | {"a.bias": np.zeros(4)}  # whose ratio is 1 at first


def delta(server_round: int, node: int) -> Model:
    draws = np.random.default_rng([server_round, node])
    return {name: draws.normal(size=shape) for name, shape in SHAPES.items()}


def drifting(node: int, content: RecordDict) -> RecordDict:
    away = delta(round_of(content), node)
    return answer({name: w - away[name] for name, w in sent_model(content).items()}, node + 1)


def trained(strategy: PseudoGradientStrategy, model: Model, rounds: int = ROUNDS) -> Model:
    return model_in(play(strategy, Federation(drifting, NODES), record(model), range(1, rounds + 1))[-1][0])


def norm(values: np.ndarray) -> float:
    return float(np.sqrt((values**2).sum()))


def plain(rule: str, model: Model, beta: float = 0.75, beta2: float = 0.5, epsilon: float = 0.125) -> Model:
    """Return what NumPy makes of the papers' lines."""
    m, v = ({name: np.zeros(shape) for name, shape in SHAPES.items()} for _ in range(2))
    for t in range(1, ROUNDS + 1):
        each = [delta(t, k) for k in range(NODES)]
        for name, w in model.items():
            d = sum((k + 1) / 6 * each[k][name] for k in range(NODES))
            if name == "bn.running_mean":
                model = model | {name: w - d}
                continue
            m[name] = beta * m[name] + (1 - beta) * d
            v[name] = beta2 * v[name] + (1 - beta2) * d**2
            if rule == "lars":
                p, beside = m[name], epsilon
            else:
                p = m[name] / (1 - beta**t) / (np.sqrt(v[name] / (1 - beta2**t)) + epsilon)
                beside = 0.0
            ratio = norm(w) / (norm(p) + beside) if norm(w) and norm(p) else 1.0
            model = model | {name: w - ETA * ratio * p}
    return model


RULES = {
    "lars": FedLARS(server_optimizer=LARS(beta=0.75, epsilon=0.125), step_size=Constant(ETA)),
    "lamb": FedLAMB(server_optimizer=LAMB(beta1=0.75, beta2=0.5, epsilon=0.125), step_size=Constant(ETA)),
}


@pytest.mark.parametrize("rule", RULES)
def test_it_agrees_with_a_plain_loop(rule: str) -> None:
    ours, expected = trained(replace(RULES[rule]), start()), plain(rule, start())
    for name, values in expected.items():
        np.testing.assert_allclose(ours[name], values, rtol=1e-12, err_msg=name)


def test_two_rounds_of_lars_by_hand() -> None:
    """Layers w_1 = (3, 4) and w_2 = (2), beta = 1/2, epsilon = 1, so that eta r_l comes out whole.

    D = (8, 0 | 2): m = (4, 0 | 1), r = (5 / 5 | 2 / 2) = (1 | 1), w - m = (-1, 4 | 1).
    D = (-4, 8 | 1): m = (0, 4 | 1), r = (sqrt(17) / 5 | 1 / 2).
    """
    layout = Layout.of(record({"w_1": np.array([3.0, 4.0]), "w_2": np.array([2.0])}))
    optimizer, state = LARS(beta=0.5, epsilon=1.0), {}
    w = torch.tensor([3.0, 4.0, 2.0], dtype=torch.float64)
    m, state = optimizer(torch.tensor([8.0, 0.0, 2.0], dtype=torch.float64), state)
    assert (m.tolist(), optimizer.scale_layers(m, w, layout).tolist()) == ([4, 0, 1], [1, 1])
    w = w - m
    m, state = optimizer(torch.tensor([-4.0, 8.0, 1.0], dtype=torch.float64), state)
    assert m.tolist() == [0, 4, 1]
    assert optimizer.scale_layers(m, w, layout).tolist() == pytest.approx([17**0.5 / 5, 0.5])


def test_from_zeros_the_first_round_is_fedavgs_and_fedadams() -> None:
    zeros = {name: np.zeros(shape) for name, shape in SHAPES.items()}
    lars = trained(FedLARS(server_optimizer=LARS(beta=0.5), step_size=Constant(1.0)), zeros, 1)
    assert_same(record(lars), record(trained(FedAvg(step_size=Constant(0.5)), zeros, 1)))
    lamb = trained(FedLAMB(), zeros, 1)
    assert_same(
        record(lamb), record(trained(FedAdam(server_optimizer=Adam(bias_correction=True)), zeros, 1))
    )


@pytest.mark.parametrize("strategy", [FedLARS(server_optimizer=LARS(epsilon=0.0)), FedLAMB()], ids=str)
def test_a_layer_moves_by_a_share_of_its_own_length(strategy: PseudoGradientStrategy) -> None:
    """Also after the optimiser has remembered rounds, and whatever the length of what moves it."""
    (*_, (before, _), (after, metrics)) = play(
        strategy, Federation(drifting, NODES), record(start()), range(1, 4)
    )
    old, new = model_in(before), model_in(after)
    for name in ("a.weight", "a.bias", "b.weight"):
        assert norm(new[name] - old[name]) == pytest.approx(0.1 * norm(old[name]), rel=1e-12)
        assert 0 < metrics[f"step-size-{name}"] < np.inf  # type: ignore[operator]
    assert "step-size" not in metrics
    assert "step-size-bn.running_mean" not in metrics


def test_what_is_frozen_is_no_layer() -> None:
    whole, part = RULES["lars"], replace(RULES["lars"], frozen_names=("b.weight",))

    def stays(node: int, content: RecordDict) -> RecordDict:
        moved = model_in(drifting(node, content)["arrays"])  # type: ignore[arg-type]
        return answer({name: moved[name] for name in moved if name != "b.weight"}, node + 1)

    assert isinstance(part, FedLARS)
    ((one, _),) = play(replace(whole), Federation(drifting, NODES), record(start()))
    ((two, metrics),) = play(part, Federation(stays, NODES), record(start()))
    assert isinstance(two, ArrayRecord)
    assert model_in(two)["b.weight"].tolist() == start()["b.weight"].tolist()
    for name in ("a.weight", "a.bias", "bn.running_mean"):
        assert model_in(two)[name].tolist() == model_in(one)[name].tolist()
    assert "step-size-b.weight" not in metrics


def test_a_norm_beyond_all_numbers_takes_no_step(caplog: pytest.LogCaptureFixture) -> None:
    """float32 has no square of 1e30."""
    large = {"w": np.full(2, 1e30, np.float32)}

    def still(node: int, content: RecordDict) -> RecordDict:
        return answer({"w": sent_model(content)["w"] * np.float32(0.5)}, 1)

    ((arrays, metrics),) = play(FedLARS(), Federation(still, NODES), record(large))
    assert_same(arrays, record(large))
    assert "server_optimizer=LARS gave nan for 'w'" in caplog.text
    assert "step-size-w" not in metrics


@pytest.mark.parametrize("given", [{"beta": 1.0}, {"epsilon": -1.0}, {"epsilon": float("inf")}], ids=str)
def test_what_is_out_of_range_is_refused(given: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"server_optimizer\.\w+=.* is out of range"):
        LARS(**given)


def test_a_mask_acts_on_the_scaled_direction() -> None:
    """NoMask and a mask that lets everything through take other paths to the same step."""
    free, masked = replace(RULES["lamb"], mask=NoMask()), replace(RULES["lamb"], mask=AgreementMask(1e-9))
    one, two = trained(free, start()), trained(masked, start())
    for name, values in one.items():
        np.testing.assert_allclose(two[name], values, rtol=1e-12, err_msg=name)
