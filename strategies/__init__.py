"""Flower strategies: the server side of federated-learning papers, as parts that compose."""

from .fedavg import FedAvg, FedAvgM
from .feder import FedER
from .fedexp import FedExP
from .fedgma import FedGMA
from .fedopt import FedAdagrad, FedAdam, FedYogi
from .fedprox import FedProx
from .grouped import Grouped
from .local import LocalOnly
from .parts.adaptive import Adagrad, Adam, Yogi
from .parts.erosion import Erosion
from .parts.grouping import Grouping, KMeans, Overlap
from .parts.mask import AgreementMask, AndMask, Mask, NoMask
from .parts.rank_weighting import EffectiveRank, StableRank
from .parts.server_optimizer import Identity, Momentum, ServerOptimizer
from .parts.step_size import Constant, Extrapolated, StepSize
from .parts.updates import Updates
from .parts.weighting import ByExamples, InverseVariance, Uniform, Weighting
from .pseudo_gradient import PseudoGradientStrategy
from .round.failures import TooManyFailedRounds
from .scaffold import Scaffold
from .selective import SelectiveFedAvg
from .weight_erosion import WeightErosion, WeightErosionForAll

__all__ = [
    "Adagrad",
    "Adam",
    "AgreementMask",
    "AndMask",
    "ByExamples",
    "Constant",
    "EffectiveRank",
    "Erosion",
    "Extrapolated",
    "FedAdagrad",
    "FedAdam",
    "FedAvg",
    "FedAvgM",
    "FedER",
    "FedExP",
    "FedGMA",
    "FedProx",
    "FedYogi",
    "Grouped",
    "Grouping",
    "Identity",
    "InverseVariance",
    "KMeans",
    "LocalOnly",
    "Mask",
    "Momentum",
    "NoMask",
    "Overlap",
    "PseudoGradientStrategy",
    "Scaffold",
    "SelectiveFedAvg",
    "ServerOptimizer",
    "StableRank",
    "StepSize",
    "TooManyFailedRounds",
    "Uniform",
    "Updates",
    "WeightErosion",
    "WeightErosionForAll",
    "Weighting",
    "Yogi",
]
