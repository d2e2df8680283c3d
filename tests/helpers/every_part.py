"""Every part there is, and a model to try it on."""

import numpy as np

from helpers.federation import Model
from strategies import (
    AMS,
    LAMB,
    LARS,
    Adagrad,
    Adam,
    Agnostic,
    AgreementMask,
    AndMask,
    ByExamples,
    Constant,
    EffectiveRank,
    Erosion,
    Extrapolated,
    ExtrapolatedByLayer,
    Fair,
    GeometricMask,
    Identity,
    InverseVariance,
    Krum,
    MagnitudeMask,
    MajorityVote,
    Mean,
    Median,
    Momentum,
    NoMask,
    Normalized,
    SandMask,
    StableRank,
    TrimmedMean,
    Uniform,
    Yogi,
)

NODES = 5
WEIGHTINGS = {
    "uniform": Uniform(),
    "examples": ByExamples(),
    "variance": InverseVariance(),
    "erosion": Erosion(requester=0, distance_penalty=0.05),
    "erosion by layer": Erosion(requester=0, distance_penalty=0.05, by_layer=True),
    "effective-rank": EffectiveRank(),
    "effective-rank-of-model": EffectiveRank(granularity="model"),
    "agnostic": Agnostic(),
    "stable-rank": StableRank(variant="initial"),
}
OPTIMIZERS = {
    "identity": Identity(),
    "momentum": Momentum(0.5),
    "adam": Adam(),
    "adam-corrected": Adam(bias_correction=True),
    "yogi": Yogi(),
    "ams": AMS(),
    "lars": LARS(beta=0.5),
    "lamb": LAMB(),
    "adagrad": Adagrad(epsilon_inside=True),
}
AGGREGATIONS = {
    "mean": Mean(),
    "median": Median(),
    "trimmed": TrimmedMean(0.2),
    "krum": Krum(1, 2),
    "normalized": Normalized(),
    "vote": MajorityVote(),
    "fair": Fair(0.5),
}
MASKS = {
    "none": NoMask(),
    "and": AndMask(0.5),
    "agreement": AgreementMask(0.5),
    "magnitude": MagnitudeMask(0.5),
    "geometric": GeometricMask(0.5),
    "sand": SandMask(0.5),
}
STEP_SIZES = {
    "constant": Constant(),
    "extrapolated": Extrapolated(epsilon_decay=0.9),
    "extrapolated by layer": ExtrapolatedByLayer(),
}


def start(dtype: type = np.float32) -> Model:
    rng = np.random.default_rng(0)
    return {
        # Three directions stand out from the noise that the nodes add: ranks are neither 0 nor full.
        "conv.weight": (rng.normal(size=(8, 3)) @ rng.normal(size=(3, 45)))
        .reshape(8, 5, 3, 3)
        .astype(dtype),
        "bn.running_mean": rng.normal(size=8).astype(dtype),
        "bn.num_batches_tracked": np.array(40),
        "fc.weight": rng.normal(size=(2, 3)).astype(dtype),
        "fc.bias": rng.normal(size=2).astype(dtype),
    }
