"""Start each node from its own initial model in round 1.

"All four clients start on different seeds" (Fu, *Leveraging Learning Metrics for Improved Federated
Learning*, 2022, on figure 4.8). From round 2 on all begin from the server's model. Corrections that refer to
the model that was sent, such as FedProx's term, still refer to the server's. A node that is first chosen
after round 1 begins as the others do. Reduction: in round 1 it is local training from the node's model,
afterwards the strategy. Frozen parameters are the server's.
"""

from typing import ClassVar

import torch

from clients.correction import Correction, RoundStart
from clients.frozen import frozen_names
from strategies.shared import protocol


class OwnInitialModel(Correction):
    """Puts the node's model in place of the server's, in round 1; it corrects no gradient.

    Methods that treat the change from the server's model as gradients, such as FedNova, refuse it.

    Parameters
    ----------
    start : the round's

    Raises
    ------
    ValueError : for a node that draws no model, as in another ClientApp
    """

    changes_initial_model: ClassVar[bool] = True

    @torch.no_grad()
    def __init__(self, start: RoundStart) -> None:
        if start.own_model is None:
            raise ValueError(
                "corrections=own_initial_model: this node draws no model of its own; leave it out"
            )
        if start.config[protocol.SERVER_ROUND] == 1:
            state, frozen = start.own_model().state_dict(), frozen_names(start.model)
            start.model.load_state_dict({**state, **{k: start.model.state_dict()[k] for k in frozen}})
