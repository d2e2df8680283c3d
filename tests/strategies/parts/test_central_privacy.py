"""Privacy at the server: clipped by hand, noise of the stated size, and nothing that goes past it."""

import math

import numpy as np
import pytest
from flwr.app import ArrayRecord, RecordDict
from flwr.serverapp import strategy as stock

from helpers.federation import Federation, Model, answer, assert_same, play, record, round_of, sent_model
from strategies import (
    AdaptivePrivacy,
    AgreementMask,
    CentralPrivacy,
    Constant,
    EffectiveRank,
    FedAvg,
    FedAvgM,
    FedExP,
    Grouped,
    LocalPrivacy,
    Median,
    Privacy,
    Scaffold,
    Uniform,
)
from strategies.shared.arrays import view_values

INFINITE = float("inf")
UNIFORM = {"weighting": Uniform()}


def still(partition_id: int, content: RecordDict) -> RecordDict:
    """Send back what came: every pseudo-gradient is 0."""
    return answer(sent_model(content))


def moving(partition_id: int, content: RecordDict) -> RecordDict:
    rng = np.random.default_rng([partition_id, round_of(content)])
    moved = {k: v + rng.normal(size=v.shape).astype(v.dtype) for k, v in sent_model(content).items()}
    return answer(moved)


def values(arrays: ArrayRecord) -> np.ndarray:
    return np.concatenate([view_values(array).ravel() for array in arrays.values()])


def model(size: int = 4) -> Model:
    return {"w": np.zeros(size, np.float32), "b": np.zeros(1, np.float32)}


def of_lengths(*lengths: float) -> Federation:
    """Return nodes whose pseudo-gradients have these norms."""

    def node(partition_id: int, content: RecordDict) -> RecordDict:
        moved = sent_model(content)["w"] - np.array([lengths[partition_id], 0, 0, 0], np.float32)
        return answer({"w": moved, "b": np.zeros(1, np.float32)})

    return Federation(node, len(lengths))


def test_each_update_is_clipped_over_all_its_arrays() -> None:
    """-(0, 3, 0, 0, 4) has norm 5 and becomes a fifth; -(0.5, 0, 0, 0, 0) is short and stays."""
    moves = [([0, 3, 0, 0], [4]), ([0.5, 0, 0, 0], [0])]

    def node(partition_id: int, content: RecordDict) -> RecordDict:
        w, b = moves[partition_id]
        return answer({"w": np.array(w, np.float32), "b": np.array(b, np.float32)})

    strategy = FedAvg(privacy=CentralPrivacy(clip=1, noise_multiplier=0), **UNIFORM)
    arrays, _ = play(strategy, Federation(node, 2), record(model()))[-1]
    assert values(arrays) == pytest.approx([0.25, 0.3, 0, 0, 0.4], abs=1e-7)


def test_it_clips_as_flowers_own_wrapper_does() -> None:
    """Flower's clips by min(1, C / norm) too, each array's norm in float32: equal to that precision."""
    wrapped = stock.DifferentialPrivacyServerSideFixedClipping(
        stock.FedAvg(min_available_nodes=3, min_train_nodes=3, fraction_evaluate=0.0), 0.0, 0.7, 3
    )
    ours = FedAvg(privacy=CentralPrivacy(clip=0.7, noise_multiplier=0), **UNIFORM)
    actual = [
        values(play(s, Federation(moving, 3), record(model()), (1, 2))[-1][0]) for s in (wrapped, ours)
    ]
    assert actual[0] == pytest.approx(actual[1], rel=1e-5, abs=1e-6)
    assert np.abs(actual[0]).max() > 0.1


@pytest.mark.parametrize("privacy", [CentralPrivacy(INFINITE, 0), LocalPrivacy(INFINITE, 0)])
@pytest.mark.parametrize("method", [FedAvg, FedAvgM])
def test_an_infinite_clip_without_noise_is_no_privacy_to_the_bit(
    method: type[FedAvg], privacy: Privacy
) -> None:
    runs = [
        play(method(**UNIFORM, **given), Federation(moving, 3), record(model()), (1, 2))
        for given in ({}, {"privacy": privacy})
    ]
    assert_same(runs[0][-1][0], runs[1][-1][0])
    assert "epsilon" not in runs[1][-1][1]


@pytest.mark.parametrize(
    ("privacy", "expected"),
    [
        (CentralPrivacy(clip=0.5, noise_multiplier=3), 3 * 0.5 / 4),
        (
            AdaptivePrivacy(clip=0.5, noise_multiplier=3, count_noise=2.5),
            0.5 * (1 / 9 - 1 / 25) ** -0.5 / 4,
        ),
    ],
)
def test_the_noise_in_the_model_has_the_stated_deviation(privacy: Privacy, expected: float) -> None:
    """z C / K in the mean, and eta = 2 doubles it; 40,001 draws tell it to 0.4 %."""
    strategy = FedAvg(step_size=Constant(2), privacy=privacy, **UNIFORM)
    arrays, _ = play(strategy, Federation(still, 4), record(model(40_000)))[-1]
    actual = values(arrays)
    assert actual.std() == pytest.approx(2 * expected, rel=0.02)
    assert abs(actual.mean()) < 5 * 2 * expected / math.sqrt(len(actual))


def test_the_noise_follows_the_seed_and_the_round() -> None:
    def noise(seed: int | None, server_round: int) -> np.ndarray:
        strategy = FedAvg(privacy=CentralPrivacy(noise_seed=seed), **UNIFORM)
        return values(play(strategy, Federation(still, 2), record(model()), (server_round,))[-1][0])

    assert (noise(1, 1) == noise(1, 1)).all()
    assert (noise(1, 1) != noise(2, 1)).all()
    assert (noise(1, 1) != noise(1, 2)).all()
    assert (noise(None, 1) != noise(None, 1)).all()  # nobody can draw it again


def test_the_clip_follows_the_quantile_by_hand() -> None:
    """Norms 1, 2, 3, 6 and C = 2: b = 1/2, so C grows by exp(0.75 - 0.5); at 2.57 it does so again."""
    privacy = AdaptivePrivacy(clip=2, noise_multiplier=0, quantile=0.75, clip_rate=1, count_noise=0)
    strategy = FedAvg(privacy=privacy, **UNIFORM)
    history = play(strategy, of_lengths(1, 2, 3, 6), record(model()), (1, 2, 3))
    clips = [metrics["clip"] for _, metrics in history]
    assert clips == pytest.approx([2, 2 * math.exp(0.25), 2 * math.exp(0.5)])
    moved = [-float(view_values(arrays["w"])[0]) for arrays, _ in history]
    assert np.diff([0, *moved]) == pytest.approx([(1 + 2 + min(3, c) + c) / 4 for c in clips], rel=1e-6)


def test_a_clip_rate_of_0_without_noise_is_the_fixed_clip() -> None:
    adaptive = AdaptivePrivacy(clip=0.7, noise_multiplier=0, clip_rate=0)
    runs = [
        play(FedAvg(privacy=privacy, **UNIFORM), Federation(moving, 3), record(model()), (1, 2))
        for privacy in (adaptive, CentralPrivacy(0.7, 0))
    ]
    assert_same(runs[0][-1][0], runs[1][-1][0])


def test_no_clip_becomes_0_or_infinite() -> None:
    for quantile, noise in ((0.0, 1e300), (1.0, 1e300)):
        privacy = AdaptivePrivacy(noise_multiplier=0, quantile=quantile, clip_rate=1e9, count_noise=noise)
        history = play(FedAvg(privacy=privacy, **UNIFORM), of_lengths(1, 2), record(model()), range(1, 5))
        assert all(0 < float(metrics["clip"]) < INFINITE for _, metrics in history)


PAST_THE_NOISE = [
    (FedExP, {}, "step_size=Extrapolated"),
    (FedAvg, {"weighting": EffectiveRank()}, "weighting=EffectiveRank"),
    (FedAvg, {"mask": AgreementMask(0.5)}, "mask=AgreementMask"),
    (FedAvg, {"aggregation": Median()}, "aggregation=Median is no sum"),
]


@pytest.mark.parametrize(("method", "given", "word"), PAST_THE_NOISE)
def test_what_goes_past_the_noise_is_refused(method: type[FedAvg], given: dict, word: str) -> None:
    with pytest.raises(ValueError, match=f"privacy would not hold: {word}.*or set privacy=none"):
        method(privacy=CentralPrivacy(), **{**UNIFORM, **given})
    method(**{**UNIFORM, **given})


def test_weights_by_examples_are_refused_centrally_and_locally() -> None:
    for privacy in (CentralPrivacy(), LocalPrivacy(), AdaptivePrivacy()):
        with pytest.raises(ValueError, match="weighting=ByExamples may follow the nodes' data"):
            FedAvg(privacy=privacy)


def test_what_the_server_makes_of_noised_updates_costs_nothing() -> None:
    FedExP(privacy=LocalPrivacy(), **UNIFORM)
    FedAvg(privacy=LocalPrivacy(), mask=AgreementMask(0.5), aggregation=Median(), **UNIFORM)


@pytest.mark.parametrize("privacy", [CentralPrivacy(), LocalPrivacy()])
def test_variates_buffers_and_groups_are_refused(privacy: Privacy) -> None:
    with pytest.raises(ValueError, match="nodes also send 'control'"):
        Scaffold(privacy=privacy, **UNIFORM).check(record(model()))
    strategy = FedAvg(privacy=privacy, **UNIFORM)
    strategy.check(record(model()))
    with pytest.raises(ValueError, match=r"'bn\.running_mean' gets no noise"):
        strategy.check(record({**model(), "bn.running_mean": np.zeros(2, np.float32)}))
    with pytest.raises(ValueError, match="each group's model"):
        Grouped(inner=strategy)


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"clip": 0}, "privacy.clip=0 "),
        ({"clip": float("nan"), "noise_multiplier": 0}, "privacy.clip=nan"),
        ({"clip": INFINITE}, "a finite number where"),
        ({"noise_multiplier": -1}, "privacy.noise_multiplier=-1"),
        ({"noise_multiplier": INFINITE}, "privacy.noise_multiplier=inf"),
        ({"delta": 0}, "privacy.delta=0"),
        ({"delta": 1}, "privacy.delta=1"),
        ({"noise_seed": -1}, "privacy.noise_seed=-1"),
        ({"stop_at_epsilon": 4.3}, r"privacy.stop_at_epsilon=4.3 .*at least 4.377, a round's"),
        (
            {"stop_at_epsilon": 4, "noise_multiplier": 0},
            "null where the noise is too small to give any epsilon",
        ),
        (
            {"stop_at_epsilon": 4, "noise_multiplier": 1e-9},
            "null where the noise is too small to give any epsilon",
        ),
    ],
)
def test_values_out_of_range_are_refused(given: dict, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        CentralPrivacy(**given)


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"quantile": 1.1}, "privacy.quantile"),
        ({"clip_rate": -1}, "privacy.clip_rate"),
        ({"count_noise": 0.5}, "privacy.count_noise=0.5 .*above 0.5, half the noise_multiplier"),
        ({"count_noise": INFINITE}, "privacy.count_noise"),
        ({"clip": INFINITE, "noise_multiplier": 0}, "a finite number to start from"),
    ],
)
def test_an_adaptive_clip_out_of_range_is_refused(given: dict, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        AdaptivePrivacy(**given)
