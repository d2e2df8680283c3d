"""What holds for every strategy, through Flower's messages."""

import pickle

import numpy as np
import pytest
from flwr.app import Message, RecordDict
from flwr.serverapp.strategy import Strategy

import strategies
from helpers.every_part import AGGREGATIONS, MASKS, NODES, OPTIMIZERS, STEP_SIZES, WEIGHTINGS, start
from helpers.every_strategy import (
    BASE,
    STRATEGIES,
    Make,
    all_strategies,
    asking,
    drifting,
    moved,
    parts_of,
    reply,
)
from helpers.federation import (
    Federation,
    assert_same,
    chosen_model,
    model_in,
    play,
    record,
    round_of,
)
from strategies import (
    AMS,
    IFCA,
    LARS,
    Aggregation,
    Constant,
    Extrapolated,
    Fair,
    FedDF,
    FedDyn,
    Grouped,
    MajorityVote,
    Mask,
    PseudoGradientStrategy,
    ServerOptimizer,
    StepSize,
    Weighting,
)
from strategies.parts.server_optimizer import Adaptive


def has_own_length(parts: PseudoGradientStrategy) -> bool:
    """Say whether a direction's length is not that of the nodes' updates."""
    if isinstance(parts, FedDyn | FedDF):  # twice the way, in the first round; what rounding says to Adam
        return True
    return isinstance(parts.server_optimizer, Adaptive | AMS | LARS) or isinstance(
        parts.aggregation, MajorityVote | Fair
    )


# From equal nodes these reach the nodes' model in one round.
REACHING = [k for k, make in STRATEGIES.items() if not has_own_length(parts_of(make()))]
both_dtypes = pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])


def agreeing(partition_id: int, content: RecordDict) -> RecordDict:
    """Return the same model as every other node."""
    rng = np.random.default_rng(round_of(content))
    return reply(content, moved(chosen_model(partition_id, content), rng), partition_id)


def idle(partition_id: int, content: RecordDict) -> RecordDict:
    """Return the model as it came."""
    return reply(
        content, chosen_model(partition_id, content), partition_id, rate=0.0
    )  # else too still to go on


def shuffled(replies: list[Message]) -> list[Message]:
    return [replies[i] for i in np.random.default_rng(3).permutation(len(replies))]


def test_no_part_and_no_strategy_is_left_out() -> None:
    """Whoever adds a part or a strategy holds it to what stands here."""
    public = [getattr(strategies, name) for name in strategies.__all__]
    tested = {
        type(part)
        for parts in (WEIGHTINGS, AGGREGATIONS, OPTIMIZERS, MASKS, STEP_SIZES)
        for part in parts.values()
    }
    tested |= {type(make()) for make in STRATEGIES.values()}
    kinds = (Weighting, Aggregation, ServerOptimizer, Mask, StepSize, Strategy)
    missing = [kind for kind in public if issubclass(kind, kinds) and kind not in tested]
    assert [kind for kind in missing if not getattr(kind, "__abstractmethods__", None)] == []


@all_strategies
def test_the_order_of_replies_changes_nothing(make: Make) -> None:
    arrays, rounds = record(start()), (1, 2, 3)
    first = play(make(), Federation(drifting, NODES), arrays, rounds)
    second = play(make(), Federation(drifting, NODES), arrays, rounds, order=shuffled)
    for (model_a, metrics_a), (model_b, metrics_b) in zip(first, second, strict=True):
        assert_same(model_a, model_b)
        assert dict(metrics_a) == dict(metrics_b)


@all_strategies
def test_node_ids_change_nothing(make: Make) -> None:
    arrays, rounds = record(start()), (1, 2, 3)
    other_ids = {2**40 - 7 * k: k for k in range(NODES)}
    (*_, (first, _)) = play(asking(make()), Federation(drifting, NODES), arrays, rounds)
    (*_, (second, _)) = play(asking(make()), Federation(drifting, other_ids), arrays, rounds)
    assert_same(first, second)


@both_dtypes
@pytest.mark.parametrize("name", REACHING)
def test_nodes_that_agree_give_their_model(name: str, dtype: type) -> None:
    arrays = record(start(dtype))
    ((new, _),) = play(STRATEGIES[name](), Federation(agreeing, NODES), arrays)
    expected = moved(start(dtype), np.random.default_rng(1))
    for key, values in model_in(new).items():
        few_ulp = (
            4 * np.finfo(dtype).eps * max(np.abs(expected[key]).max(), np.abs(start(dtype)[key]).max())
        )
        np.testing.assert_allclose(values, expected[key], rtol=0, atol=few_ulp, err_msg=key)


@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_nodes_that_agree_count_as_one(optimizer: ServerOptimizer) -> None:
    arrays = record(start(np.float64))
    ((several, _),) = play(BASE(server_optimizer=optimizer), Federation(agreeing, NODES), arrays)
    alone = BASE(server_optimizer=optimizer, num_nodes=1)
    ((one, _),) = play(alone, Federation(agreeing, 1), arrays)
    for key, values in model_in(several).items():
        np.testing.assert_allclose(values, model_in(one)[key], rtol=1e-12, err_msg=key)


@all_strategies
def test_nodes_that_do_not_move_leave_the_model_to_the_bit(make: Make) -> None:
    arrays = record(start())
    strategy = make()
    for new, _ in play(strategy, Federation(idle, NODES), arrays, rounds=(1, 2, 3)):
        # What Grouped returns is a mean over groups, which rounds: its groups' own models do not.
        for model in (
            strategy.models_to_evaluate(new).values() if isinstance(strategy, Grouped | IFCA) else [new]
        ):
            assert_same(model, arrays)


@all_strategies
def test_the_given_model_is_not_modified(make: Make) -> None:
    arrays = record(start())
    play(make(), Federation(drifting, NODES), arrays)
    assert_same(arrays, record(start()))


@both_dtypes
@all_strategies
def test_names_shapes_and_dtypes_are_kept(make: Make, dtype: type) -> None:
    (*_, (new, _)) = play(make(), Federation(drifting, NODES), record(start(dtype)), rounds=(1, 2))
    assert list(new) == list(start())
    for name, values in model_in(new).items():
        assert (values.shape, values.dtype) == (start(dtype)[name].shape, start(dtype)[name].dtype)
        assert np.isfinite(values).all()


@pytest.mark.parametrize("step_size", [Constant(7.0), Extrapolated(0.0)], ids=["constant", "extrapolated"])
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_buffers_are_averaged_and_nothing_else(
    optimizer: ServerOptimizer, mask: Mask, step_size: StepSize
) -> None:
    strategy = BASE(server_optimizer=optimizer, mask=mask, step_size=step_size)
    ((new, _),) = play(strategy, Federation(drifting, NODES), record(start()))
    sent = [moved(start(), np.random.default_rng([k, 1])) for k in range(NODES)]
    alphas = np.arange(1, NODES + 1) / np.arange(1, NODES + 1).sum()
    for name, digits in (("bn.running_mean", 6), ("bn.num_batches_tracked", 0)):
        mean = sum(alpha * model[name].astype(float) for alpha, model in zip(alphas, sent, strict=True))
        np.testing.assert_array_almost_equal_nulp(
            model_in(new)[name], np.round(mean, 12 if digits else 0).astype(start()[name].dtype)
        )


@all_strategies
def test_same_seed_same_bytes(make: Make) -> None:
    arrays, rounds = record(start()), (1, 2, 3)
    first, second = Federation(drifting, NODES), Federation(drifting, NODES)
    one, two = play(make(), first, arrays, rounds), play(make(), second, arrays, rounds)
    assert first.trained() == second.trained() != []
    for (model_a, _), (model_b, _) in zip(one, two, strict=True):
        assert_same(model_a, model_b)


@all_strategies
def test_a_restored_strategy_goes_on_as_if_nothing_had_happened(make: Make) -> None:
    whole, arrays = make(), record(start())
    history = play(whole, Federation(drifting, NODES), arrays, rounds=(1, 2, 3, 4))
    half = make()
    (*_, (middle, _)) = play(half, Federation(drifting, NODES), arrays, rounds=(1, 2))
    restored = make()
    restored.load_state_dict(pickle.loads(pickle.dumps(half.state_dict())))  # as from disk
    judged, expected = restored.models_to_evaluate(middle), half.models_to_evaluate(middle)
    assert list(judged) == list(expected)
    for name in expected:
        assert_same(judged[name], expected[name])
    rest = play(restored, Federation(drifting, NODES), middle, rounds=(3, 4))
    for (model_a, metrics_a), (model_b, metrics_b) in zip(history[2:], rest, strict=True):
        assert_same(model_a, model_b)
        assert dict(metrics_a) == dict(metrics_b)
    judged, expected = restored.models_to_evaluate(rest[-1][0]), whole.models_to_evaluate(history[-1][0])
    for name in expected:
        assert_same(judged[name], expected[name])


@all_strategies
def test_a_saved_state_does_not_change_when_training_goes_on(make: Make) -> None:
    strategy = make()
    (*_, (middle, _)) = play(strategy, Federation(drifting, NODES), record(start()), rounds=(1, 2))
    saved = strategy.state_dict()
    before = pickle.dumps(saved)
    play(strategy, Federation(drifting, NODES), middle, rounds=(3, 4))
    assert pickle.dumps(saved) == before
