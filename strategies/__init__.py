"""Flower strategies: the server side of federated-learning papers, as parts that compose."""

from .adaptive import Adagrad, Adam, Yogi
from .erosion import Erosion
from .fedavg import FedAvg, FedAvgM
from .feder import FedER
from .fedexp import FedExP
from .fedgma import FedGMA
from .fedopt import FedAdagrad, FedAdam, FedYogi
from .fedprox import FedProx
from .grouped import Grouped, LocalOnly
from .grouping import Grouping, KMeans, Overlap
from .mask import AgreementMask, AndMask, Mask, NoMask
from .participation import TooManyFailedRounds
from .pseudo_gradient import PseudoGradientStrategy
from .rank_weighting import EffectiveRank, StableRank
from .scaffold import Scaffold
from .selective import SelectiveFedAvg
from .server_optimizer import Identity, Momentum, ServerOptimizer
from .step_size import Constant, Extrapolated, StepSize
from .updates import Updates
from .weight_erosion import WeightErosion, WeightErosionForAll
from .weighting import ByExamples, InverseVariance, Uniform, Weighting

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
