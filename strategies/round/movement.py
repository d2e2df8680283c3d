"""Movement: do the nodes move the model? A learning rate of 0 is a choice, a silent zero gradient none."""

import logging
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from .failures import TooManyFailedRounds

logger = logging.getLogger("flwr.strategies")
MOST_STILL_ROUNDS = 3  # from the first one on
CAUSES = (
    "look for a learning rate that is too small, frozen parameters, a loss that does not depend on them, "
    "or a client that returns the model it was sent"
)


class Movement:
    """Watches the rounds of one model.

    Once a node has moved a parameter, later rounds without movement are named and no more: a model may have
    reached the floor of its arithmetic.
    """

    def __init__(self, *, alone: bool = True) -> None:
        self.alone = alone  # False for the model of one group among others: see :func:`among`
        self.seen = False  # whether any node has ever moved a parameter
        self.still = 0  # rounds without movement since the first one
        self.hopeless = False  # whether these were the first, and enough
        self.named = False

    def note(self, server_round: int, moved: bool, rates: Tensor | None) -> None:
        """Take note of a round.

        Parameters
        ----------
        moved : whether any node returned another parameter than it was sent
        rates : the nodes' learning rates [K]; None where not all of them tell

        Raises
        ------
        TooManyFailedRounds : when no node has moved anything in the first three rounds, at learning rates
            above 0
        """
        if moved:
            self.seen, self.hopeless = True, False
            return
        if rates is not None and not rates.any():
            return
        self.still += 1
        self.hopeless = rates is not None and not self.seen and self.still >= MOST_STILL_ROUNDS
        if self.alone:
            among(server_round, {"": self})

    def state_dict(self) -> dict[str, Any]:
        """Return what the next round depends on."""
        return {"seen": self.seen, "still": self.still, "named": self.named}

    def load_state_dict(self, state: dict[str, Any] | None) -> None:
        """Continue from it; None, of an older checkpoint, stands for a model that has moved."""
        state = state or {"seen": True, "still": 0, "named": False}
        self.seen, self.still, self.named = state["seen"], state["still"], state["named"]


def among(server_round: int, movements: Mapping[str, Movement]) -> None:
    """Name the models, by group, that no node has moved, each once.

    Raises
    ------
    TooManyFailedRounds : when no model has moved in its first three rounds, at learning rates above 0
    """
    still = [name for name, movement in movements.items() if movement.still and not movement.named]
    if still:
        others = f" and {len(still) - 3} more" if len(still) > 3 else ""
        whose = f" of {', '.join(still[:3])}{others}" if still[0] else ""
        logger.warning("round %d: no node%s has moved any parameter: %s", server_round, whose, CAUSES)
    for name in still:
        movements[name].named = True
    if all(movement.hopeless for movement in movements.values()):
        rounds = min(movement.still for movement in movements.values())
        raise TooManyFailedRounds(f"no node has moved any parameter in {rounds} rounds: {CAUSES}")
