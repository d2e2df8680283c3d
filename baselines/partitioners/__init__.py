"""Partitioners: divide training examples among nodes; one class and one YAML file each."""

from .by_writer import ByWriter
from .dirichlet_equal import DirichletEqual
from .dominant_labels import DominantLabels
from .flower import Dirichlet, Iid
from .label_groups import LabelGroups
from .partitioner import Partitioner, checked, split_node
from .pathological import Pathological
from .quantity_skew import QuantitySkew
from .shifted_labels import ShiftedLabels
from .whole import Centralized, Replicated

__all__ = [
    "ByWriter",
    "Centralized",
    "Dirichlet",
    "DirichletEqual",
    "DominantLabels",
    "Iid",
    "LabelGroups",
    "Partitioner",
    "Pathological",
    "QuantitySkew",
    "Replicated",
    "ShiftedLabels",
    "checked",
    "split_node",
]
