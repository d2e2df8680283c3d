"""What a node does: local training and evaluation, behind one Flower ClientApp."""

from .app import client_app
from .correction import Correction, Edit, GradientTransform, RoundStart
from .examples import Examples, LazyRows, Normalize
from .frozen import Frozen
from .methods.ditto import Ditto
from .methods.feddyn import Dynamic
from .methods.fednova import EffectiveSteps
from .methods.fedprox import GradientVariance, Inexact, Proximal
from .methods.fedrep import FedRep
from .methods.moon import Moon
from .methods.own_initial_model import OwnInitialModel
from .methods.per_fedavg import PerFedAvg
from .methods.qfedavg import StartLoss
from .methods.scaffold import ControlVariate
from .methods.uga import KeepTrace
from .round import Node
from .tasks import Classification, LeastSquares, NextToken, Task
from .training import Exponential, LocalTraining, LocalUpdate, Personal, Schedule, StepDecay

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
    "GradientTransform",
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
