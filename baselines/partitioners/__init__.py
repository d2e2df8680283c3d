"""Partitioners: which node holds which training examples."""

from .flower import Dirichlet, Iid
from .natural import Natural
from .partitioner import Partitioner, split_node

__all__ = ["Dirichlet", "Iid", "Natural", "Partitioner", "split_node"]
