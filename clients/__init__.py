"""Local training and evaluation on the nodes, behind one Flower ClientApp."""

from .app import client_app
from .correction import Correction, Edit, GradientTransform, RoundStart
from .examples import Examples, LazyRows, Normalize
from .frozen import Frozen
from .methods.apfl import APFL
from .methods.ditto import Ditto
from .methods.fedbabu import FedBABU
from .methods.fedcm import ClientMomentum, MimeMomentum
from .methods.feddecorr import FedDecorr
from .methods.feddyn import Dynamic
from .methods.fedlc import FedLC
from .methods.fednova import EffectiveSteps
from .methods.fedntd import FedNTD
from .methods.fedproto import PrototypeDistance
from .methods.fedprox import GradientVariance, Inexact, Proximal
from .methods.fedrep import FedRep
from .methods.fedrs import FedRS
from .methods.fedsam import FedSAM
from .methods.ifca import LeastLoss
from .methods.moon import Moon, Representation
from .methods.oort import SquaredLoss
from .methods.own_initial_model import OwnInitialModel
from .methods.per_fedavg import PerFedAvg
from .methods.pfedme import PFedMe
from .methods.qfedavg import StartLoss
from .methods.scaffnew import LocalVariate
from .methods.scaffold import ControlVariate
from .methods.uga import KeepTrace, full_gradient, full_loss
from .round import Node
from .tasks import Classification, LeastSquares, NextToken, Task
from .training import Exponential, LocalTraining, LocalUpdate, Personal, Schedule, StepDecay

__all__ = [
    "APFL",
    "Classification",
    "ClientMomentum",
    "ControlVariate",
    "Correction",
    "Ditto",
    "Dynamic",
    "Edit",
    "EffectiveSteps",
    "Examples",
    "Exponential",
    "FedBABU",
    "FedDecorr",
    "FedLC",
    "FedNTD",
    "FedRS",
    "FedRep",
    "FedSAM",
    "Frozen",
    "GradientTransform",
    "GradientVariance",
    "Inexact",
    "KeepTrace",
    "LazyRows",
    "LeastLoss",
    "LeastSquares",
    "LocalTraining",
    "LocalUpdate",
    "LocalVariate",
    "MimeMomentum",
    "Moon",
    "NextToken",
    "Node",
    "Normalize",
    "OwnInitialModel",
    "PFedMe",
    "PerFedAvg",
    "Personal",
    "PrototypeDistance",
    "Proximal",
    "Representation",
    "RoundStart",
    "Schedule",
    "SquaredLoss",
    "StartLoss",
    "StepDecay",
    "Task",
    "client_app",
    "full_gradient",
    "full_loss",
]
