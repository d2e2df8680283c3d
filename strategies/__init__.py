"""Flower strategies: the server side of federated-learning papers, as parts that compose."""

from .adaptive import Adagrad, Adam, Yogi
from .fedavg import FedAvg, FedAvgM
from .fedexp import FedExP
from .fedgma import FedGMA
from .fedopt import FedAdagrad, FedAdam, FedYogi
from .fedprox import FedProx
from .mask import AgreementMask, AndMask, Mask, NoMask
from .pseudo_gradient import PseudoGradientStrategy, TooManyFailedRounds
from .server_optimizer import Identity, Momentum, ServerOptimizer
from .step_size import Constant, Extrapolated, StepSize
from .updates import Updates
from .weighting import ByExamples, Uniform, Weighting

__all__ = [
    "Adagrad",
    "Adam",
    "AgreementMask",
    "AndMask",
    "ByExamples",
    "Constant",
    "Extrapolated",
    "FedAdagrad",
    "FedAdam",
    "FedAvg",
    "FedAvgM",
    "FedExP",
    "FedGMA",
    "FedProx",
    "FedYogi",
    "Identity",
    "Mask",
    "Momentum",
    "NoMask",
    "PseudoGradientStrategy",
    "ServerOptimizer",
    "StepSize",
    "TooManyFailedRounds",
    "Uniform",
    "Updates",
    "Weighting",
    "Yogi",
]
