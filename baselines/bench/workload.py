"""What every workload is."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from .report import Row


@dataclass(frozen=True)
class Workload(ABC):
    """Something to measure; its fields are its sizes.

    Parameters
    ----------
    name : as the command line and the table have it
    """

    name: str

    @abstractmethod
    def measure(self, repeats: int, peers: bool) -> list[Row]:
        """Let the contenders take turns ``repeats`` times; ``peers`` adds other frameworks.

        Raises
        ------
        UserError : when the data cannot be had
        """
