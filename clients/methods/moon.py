"""MOON: keep representations near the global model's, and away from the node's last model's.

Li, He, Song: *Model-Contrastive Federated Learning*, CVPR 2021, equation 3 and Algorithm 1. z, z_glob and
z_prev represent an example by the model in training, by the global one w_t, and by the one that the node had
at the end of its last round. With s the cosine similarity, the loss gets mu times

    l_con = -log( exp(s(z, z_glob) / tau) / (exp(s(z, z_glob) / tau) + exp(s(z, z_prev) / tau)) )

averaged over the batch. The representation is what the model's last linear layer is given. Deviations: the
paper adds a projection head of its own to the model; the two fixed models are in evaluation mode. A node's
first round, in which it has no last model, goes without the term. Reduction: mu = 0 is FedAvg.
"""

import copy
from collections.abc import Sequence
from typing import ClassVar
from weakref import finalize

import torch
from flwr.app import ArrayRecord
from torch import Tensor, nn
from torch.nn import Parameter
from torch.nn.functional import cosine_similarity, softplus

from clients.correction import Correction, RoundStart
from clients.examples import Inputs, compute_outputs
from clients.tasks import Task
from strategies.shared.arrays import to_array_record, values_of
from strategies.shared.checks import require

OPTION = "corrections=moon"
STATE_KEY = "moon"  # ArrayRecord of a node's state: its last model


class Moon(Correction):
    """The model-contrastive term of one round.

    Parameters
    ----------
    start : the round's; its model is at w_t
    mu : strength, 0 or above
    temperature : tau, above 0
    """

    remembers: ClassVar[bool] = True

    def __init__(self, start: RoundStart, mu: float = 1.0, temperature: float = 0.5) -> None:
        self.check_settings(mu, temperature)
        self.mu, self.temperature = mu, temperature
        self.model, self.state = start.model, start.state
        self.check_model(start.model, start.task)  # in the first round, too
        self.fixed: list[Representation] = []
        if self.has_loss_term:
            saved = self.state.array_records[STATE_KEY].items()
            last = copy.deepcopy(start.model)
            last.load_state_dict({name: values_of(array) for name, array in saved})
            self.fixed = [Representation(m.eval(), OPTION) for m in (copy.deepcopy(start.model), last)]
            self.own = Representation(start.model, OPTION)

    @staticmethod
    def check_settings(mu: float, temperature: float) -> None:
        require(0 <= mu < float("inf"), "client.corrections.moon.mu", mu, "0 or above")
        require(temperature > 0, "client.corrections.moon.temperature", temperature, "above 0")

    @staticmethod
    def check_model(model: nn.Module, task: Task) -> None:
        find_last_linear(model, OPTION)

    @property
    def has_loss_term(self) -> bool:
        """Whether it adds to the loss: not in a node's first round."""
        return self.mu > 0 and STATE_KEY in self.state.array_records

    def loss_term(self, model: nn.Module, inputs: Inputs, outputs: Tensor, targets: Tensor) -> Tensor:
        with torch.no_grad():
            of_global, of_last = (fixed(inputs) for fixed in self.fixed)
        z = self.own.latest
        near, far = cosine_similarity(z, of_global), cosine_similarity(z, of_last)
        return self.mu * softplus((far - near) / self.temperature).mean()

    def on_round_end(
        self, parameters: Sequence[Parameter], metrics: dict[str, float]
    ) -> dict[str, ArrayRecord]:
        """Keep the model in the node's state."""
        values = self.model.state_dict().items()
        self.state[STATE_KEY] = to_array_record({name: tensor.clone() for name, tensor in values})
        return {}


class Representation:
    """The latest input of a model's last linear layer, [n, d].

    Parameters
    ----------
    model : the model
    who : who needs it, for the line that refuses a model without a linear layer
    """

    def __init__(self, model: nn.Module, who: str) -> None:
        self.model, inputs = model, list[Tensor]()

        def record(_: nn.Module, args: tuple[Tensor, ...]) -> None:
            inputs[:] = args[:1]

        handle = find_last_linear(model, who).register_forward_pre_hook(record)
        self._inputs = inputs
        finalize(self, handle.remove)  # the model is the next node's too

    @property
    def latest(self) -> Tensor:
        """The representation of the last batch, [n, features]."""
        return self._inputs[0].flatten(1)

    def __call__(self, inputs: Inputs) -> Tensor:
        """Return the representation of a batch."""
        compute_outputs(self.model, inputs)
        return self.latest


def find_last_linear(model: nn.Module, who: str) -> nn.Linear:
    """Return a model's last linear layer; raise ``ValueError`` where there is none."""
    linear = [layer for layer in model.modules() if isinstance(layer, nn.Linear)]
    if not linear:
        raise ValueError(f"{who} needs a model with a linear layer, and this one has none")
    return linear[-1]
