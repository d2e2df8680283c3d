"""What a node does: local training and evaluation, behind one Flower ClientApp."""

from .app import Node, client_app
from .control_variate import ControlVariate
from .correction import Correction, RoundStart
from .corrections import GradientVariance, Proximal
from .examples import Examples, Normalize
from .schedules import Exponential, Schedule, StepDecay
from .tasks import Classification, LeastSquares, Task
from .training import LocalTraining

__all__ = [
    "Classification",
    "ControlVariate",
    "Correction",
    "Examples",
    "Exponential",
    "GradientVariance",
    "LeastSquares",
    "LocalTraining",
    "Node",
    "Normalize",
    "Proximal",
    "RoundStart",
    "Schedule",
    "StepDecay",
    "Task",
    "client_app",
]
