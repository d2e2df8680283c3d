"""Ditto: each node also trains its own model, held near the shared one.

Li, Hu, Beirami, Smith: *Ditto: Fair and Robust Federated Learning Through Personalization*, ICML 2021
(arXiv 2012.04221), Algorithm 1. Node k takes part in the strategy's round as it would without Ditto, and the
server hears of nothing else. Besides, it trains its own model v_k, held near w_t, the model it was sent:

    v_k <- v_k - lr (grad F_k(v_k) + lambda (v_k - w_t))

for as many steps as the node is to take, on the same batches, as the authors' code does. v_k stays at the
node, in Flower's ``context.state``, with its buffers. It begins as the first model that the node is sent to
train; until then the server's model is evaluated. Corrections and a kept optimiser apply to the shared model
alone. Reductions: lambda = 0 is local training; the server's models are those without Ditto, whatever lambda.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from flwr.app import RecordDict
from torch import Tensor, nn

from clients.examples import Examples
from clients.tasks import Task
from clients.training import LocalUpdate, Personal
from strategies.shared.arrays import to_array_record, values_of
from strategies.shared.checks import require

from .fedprox import ProximalTerm

STATE_KEY = "ditto"  # ArrayRecord of a node's state: v_k


@dataclass(frozen=True)
class Ditto(Personal):
    """A personal model, trained beside the shared one.

    Parameters
    ----------
    strength : lambda, 0 or above; the paper takes 0.05 to 2
    """

    remembers: ClassVar[bool] = True
    has_fixed_start: ClassVar[bool] = True
    strength: float = 0.1

    def __post_init__(self) -> None:
        """Refuse a negative strength."""
        require(0 <= self.strength < float("inf"), "client.personal.strength", self.strength, "0 or above")

    def check(self, model: nn.Module, private: Sequence[str]) -> None:
        if private:
            raise ValueError(
                f"client.private={list(private)} with client.personal=Ditto, whose nodes keep whole models "
                "of their own: set client.private=[]"
            )

    def train(self, update: LocalUpdate) -> dict[str, float]:
        model, state = update.model, update.memory
        assert state is not None, "what a node keeps needs a place"
        anchor = [p.detach().clone() for p in model.parameters() if p.requires_grad]
        sent = _get_values(model)
        metrics = update.run()
        shared = _get_values(model)
        model.load_state_dict(_load_model(state) or sent)
        replace(update, corrections=[ProximalTerm(anchor, self.strength)], memory=None).run()
        state[STATE_KEY] = to_array_record(_get_values(model))
        model.load_state_dict(shared)
        return metrics

    def personalise(
        self, model: nn.Module, examples: Examples, task: Task, batch_size: int | None, state: RecordDict
    ) -> None:
        if saved := _load_model(state):
            model.load_state_dict(saved)


def _get_values(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def _load_model(state: RecordDict) -> dict[str, Tensor]:
    """Return v_k; nothing where there is none yet."""
    if STATE_KEY not in state.array_records:
        return {}
    return {name: values_of(array) for name, array in state.array_records[STATE_KEY].items()}
