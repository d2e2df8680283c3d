"""Flower strategies: the server side of federated-learning papers, as parts that compose."""

from .afl import AFL
from .codistillation import CoDistillation
from .core.clock import ConstantClock, LognormalClock, TraceClock, VirtualClock
from .core.distillation import Distillation
from .core.pseudo_gradient import PseudoGradientStrategy
from .core.strategy import Question, ServerData, TooManyFailedRounds
from .fedams import FedAMS
from .fedasync import FedAsync
from .fedavg import FedAvg, FedAvgM, FedMeta
from .fedbuff import FedBuff
from .fedcm import FedCM
from .feddf import FedDF
from .feddyn import FedDyn
from .feder import FedER
from .fedexp import FedExP
from .fedgma import FedGMA
from .fedlars import FedLAMB, FedLARS
from .fednova import FedNova
from .fedopt import FedAdagrad, FedAdam, FedYogi
from .fedproto import FedProto
from .fedprox import FedProx
from .grouped import Grouped, LocalOnly
from .ifca import IFCA, HypCluster
from .mimelite import MimeLite
from .oort import Oort
from .parts.aggregation import Aggregation, Fair, Krum, MajorityVote, Mean, Median, Normalized, TrimmedMean
from .parts.clustering import Grouping, KMeans, Overlap
from .parts.mask import AgreementMask, AndMask, GeometricMask, MagnitudeMask, Mask, NoMask, SandMask
from .parts.privacy import AdaptivePrivacy, CentralPrivacy, LocalPrivacy, NoPrivacy, Privacy
from .parts.server_optimizer import (
    AMS,
    LAMB,
    LARS,
    Adagrad,
    Adam,
    Identity,
    Momentum,
    ServerOptimizer,
    Yogi,
)
from .parts.staleness import ConstantStaleness, HingeStaleness, PolynomialStaleness, Staleness
from .parts.step_size import Constant, Extrapolated, ExtrapolatedByLayer, StepSize
from .parts.updates import Updates
from .parts.weighting import (
    Agnostic,
    ByExamples,
    EffectiveRank,
    Erosion,
    InverseVariance,
    StableRank,
    Uniform,
    Weighting,
)
from .power_of_choice import PowerOfChoice
from .qfedavg import QFedAvg
from .scaffnew import Scaffnew
from .scaffold import Scaffold
from .selective import SelectiveFedAvg
from .shared.codecs import LowRank, RandomMask, ScaledSign, Sketch, TopK
from .shared.compression import Compression, NoCompression
from .signsgd import SignSGD
from .weight_erosion import WeightErosion, WeightErosionForAll

__all__ = [
    "AFL",
    "AMS",
    "IFCA",
    "LAMB",
    "LARS",
    "Adagrad",
    "Adam",
    "AdaptivePrivacy",
    "Aggregation",
    "Agnostic",
    "AgreementMask",
    "AndMask",
    "ByExamples",
    "CentralPrivacy",
    "CoDistillation",
    "Compression",
    "Constant",
    "ConstantClock",
    "ConstantStaleness",
    "Distillation",
    "EffectiveRank",
    "Erosion",
    "Extrapolated",
    "ExtrapolatedByLayer",
    "Fair",
    "FedAMS",
    "FedAdagrad",
    "FedAdam",
    "FedAsync",
    "FedAvg",
    "FedAvgM",
    "FedBuff",
    "FedCM",
    "FedDF",
    "FedDyn",
    "FedER",
    "FedExP",
    "FedGMA",
    "FedLAMB",
    "FedLARS",
    "FedMeta",
    "FedNova",
    "FedProto",
    "FedProx",
    "FedYogi",
    "GeometricMask",
    "Grouped",
    "Grouping",
    "HingeStaleness",
    "HypCluster",
    "Identity",
    "InverseVariance",
    "KMeans",
    "Krum",
    "LocalOnly",
    "LocalPrivacy",
    "LognormalClock",
    "LowRank",
    "MagnitudeMask",
    "MajorityVote",
    "Mask",
    "Mean",
    "Median",
    "MimeLite",
    "Momentum",
    "NoCompression",
    "NoMask",
    "NoPrivacy",
    "Normalized",
    "Oort",
    "Overlap",
    "PolynomialStaleness",
    "PowerOfChoice",
    "Privacy",
    "PseudoGradientStrategy",
    "QFedAvg",
    "Question",
    "RandomMask",
    "SandMask",
    "Scaffnew",
    "Scaffold",
    "ScaledSign",
    "SelectiveFedAvg",
    "ServerData",
    "ServerOptimizer",
    "SignSGD",
    "Sketch",
    "StableRank",
    "Staleness",
    "StepSize",
    "TooManyFailedRounds",
    "TopK",
    "TraceClock",
    "TrimmedMean",
    "Uniform",
    "Updates",
    "VirtualClock",
    "WeightErosion",
    "WeightErosionForAll",
    "Weighting",
    "Yogi",
]
