"""What a node does: local training and evaluation, behind one Flower ClientApp."""

from .app import client_app
from .control_variate import ControlVariate
from .correction import Correction, Edit, RoundStart
from .corrections import GradientVariance, Proximal
from .ditto import Ditto
from .dynamic import Dynamic
from .effective_steps import EffectiveSteps
from .examples import Examples, Normalize
from .fedrep import FedRep
from .frozen import Frozen
from .inexact import Inexact
from .keep_trace import KeepTrace
from .lazy import LazyRows
from .moon import Moon
from .own_initial_model import OwnInitialModel
from .per_fedavg import PerFedAvg
from .personal import LocalUpdate, Personal
from .schedules import Exponential, Schedule, StepDecay
from .start_loss import StartLoss
from .tasks import Classification, LeastSquares, NextToken, Task
from .training import LocalTraining
from .turn import Node

__all__ = [
    "Classification",
    "ControlVariate",
    "Correction",
    "Ditto",
    "Dynamic",
    "Edit",
    "EffectiveSteps",
    "Examples",
    "Exponential",
    "FedRep",
    "Frozen",
    "GradientVariance",
    "Inexact",
    "KeepTrace",
    "LazyRows",
    "LeastSquares",
    "LocalTraining",
    "LocalUpdate",
    "Moon",
    "NextToken",
    "Node",
    "Normalize",
    "OwnInitialModel",
    "PerFedAvg",
    "Personal",
    "Proximal",
    "RoundStart",
    "Schedule",
    "StartLoss",
    "StepDecay",
    "Task",
    "client_app",
]
