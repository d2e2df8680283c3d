"""What a node does: local training and evaluation, behind one Flower ClientApp."""

from .app import Node, client_app
from .corrections import Correction, Proximal
from .examples import Examples, Normalize
from .schedules import Exponential, Schedule
from .tasks import Classification, LeastSquares, Task
from .training import LocalTraining

__all__ = [
    "Classification",
    "Correction",
    "Examples",
    "Exponential",
    "LeastSquares",
    "LocalTraining",
    "Node",
    "Normalize",
    "Proximal",
    "Schedule",
    "Task",
    "client_app",
]
