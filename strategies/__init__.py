"""Flower strategies: the server side of federated-learning papers, as parts that compose."""

from .fedavg import FedAvg, FedAvgM
from .fedexp import FedExP
from .fedprox import FedProx
from .mask import Mask, NoMask
from .pseudo_gradient import PseudoGradientStrategy, TooManyFailedRounds
from .server_optimizer import Identity, Momentum, ServerOptimizer
from .step_size import Constant, Extrapolated, StepSize
from .updates import Updates
from .weighting import ByExamples, Uniform, Weighting

__all__ = [
    "ByExamples",
    "Constant",
    "Extrapolated",
    "FedAvg",
    "FedAvgM",
    "FedExP",
    "FedProx",
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
]
