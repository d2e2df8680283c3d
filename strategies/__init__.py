"""Flower strategies: the server side of federated-learning papers, as parts that compose."""

from .fedavg import FedAvg, FedAvgM, FedMeta
from .feddyn import FedDyn
from .feder import FedER
from .fedexp import FedExP
from .fedgma import FedGMA
from .fednova import FedNova
from .fedopt import FedAdagrad, FedAdam, FedYogi
from .fedprox import FedProx
from .grouped import Grouped
from .local import LocalOnly
from .parts.adaptive import Adagrad, Adam, Yogi
from .parts.aggregation import Aggregation, Mean, Median, TrimmedMean
from .parts.central_privacy import AdaptivePrivacy, CentralPrivacy
from .parts.erosion import Erosion
from .parts.fair import Fair
from .parts.grouping import Grouping, KMeans, Overlap
from .parts.krum import Krum
from .parts.magnitude_masks import GeometricMask, MagnitudeMask, SandMask
from .parts.majority_vote import MajorityVote
from .parts.mask import AgreementMask, AndMask, Mask, NoMask
from .parts.normalized import Normalized
from .parts.privacy import LocalPrivacy, NoPrivacy, Privacy
from .parts.rank_weighting import EffectiveRank, StableRank
from .parts.server_optimizer import Identity, Momentum, ServerOptimizer
from .parts.step_size import Constant, Extrapolated, StepSize
from .parts.updates import Updates
from .parts.weighting import ByExamples, InverseVariance, Uniform, Weighting
from .pseudo_gradient import PseudoGradientStrategy
from .qfedavg import QFedAvg
from .round.failures import TooManyFailedRounds
from .scaffold import Scaffold
from .selective import SelectiveFedAvg
from .shared.biased import ScaledSign, TopK
from .shared.compression import Compression, NoCompression
from .shared.low_rank import LowRank
from .shared.sketches import RandomMask, Sketch
from .signsgd import SignSGD
from .weight_erosion import WeightErosion, WeightErosionForAll

__all__ = [
    "Adagrad",
    "Adam",
    "AdaptivePrivacy",
    "Aggregation",
    "AgreementMask",
    "AndMask",
    "ByExamples",
    "CentralPrivacy",
    "Compression",
    "Constant",
    "EffectiveRank",
    "Erosion",
    "Extrapolated",
    "Fair",
    "FedAdagrad",
    "FedAdam",
    "FedAvg",
    "FedAvgM",
    "FedDyn",
    "FedER",
    "FedExP",
    "FedGMA",
    "FedMeta",
    "FedNova",
    "FedProx",
    "FedYogi",
    "GeometricMask",
    "Grouped",
    "Grouping",
    "Identity",
    "InverseVariance",
    "KMeans",
    "Krum",
    "LocalOnly",
    "LocalPrivacy",
    "LowRank",
    "MagnitudeMask",
    "MajorityVote",
    "Mask",
    "Mean",
    "Median",
    "Momentum",
    "NoCompression",
    "NoMask",
    "NoPrivacy",
    "Normalized",
    "Overlap",
    "Privacy",
    "PseudoGradientStrategy",
    "QFedAvg",
    "RandomMask",
    "SandMask",
    "Scaffold",
    "ScaledSign",
    "SelectiveFedAvg",
    "ServerOptimizer",
    "SignSGD",
    "Sketch",
    "StableRank",
    "StepSize",
    "TooManyFailedRounds",
    "TopK",
    "TrimmedMean",
    "Uniform",
    "Updates",
    "WeightErosion",
    "WeightErosionForAll",
    "Weighting",
    "Yogi",
]
