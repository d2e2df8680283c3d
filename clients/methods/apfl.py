"""APFL: evaluate each node with a mixture of the server's model and its own.

Deng, Kamani, Mahdavi: *Adaptive Personalized Federated Learning*, 2020 (arXiv 2003.13461), Algorithm 1.
Node k takes part in the strategy's round as it would without APFL, and the server hears of nothing else.
Besides, it keeps v_k, and in each step, on the same batch, with w the model in training,

    v~  = alpha v_k + (1 - alpha) w
    v_k <- v_k - eta_l alpha grad F_k(v~)                           w <- w - eta_l grad F_k(w)

It is evaluated with alpha v_k + (1 - alpha) w_t. ``adaptive`` renews alpha at the first step of each round,
as the authors' code does (equation 9, cut to [0, 1]; their small pull to 0 is left out):

    alpha <- alpha - eta_l <v_k - w, grad F_k(v~)>

v_k begins as the first model that the node is sent to train; until then the server's model is evaluated. The
authors' code mixes the two models' outputs, where Algorithm 1 mixes their parameters. It takes w's step before
v_k's, and alpha's slope after both, from alpha and 1 - alpha times the two models' own gradients.
Deviations: the paper evaluates with the node's local w, here w_t is mixed in. v_k takes plain gradient steps of
the round's learning rate, whatever the client's optimiser. It has no running statistics of its own. Terms in
the loss, and the point at which FedSAM takes a gradient, apply to both models; other corrections to w alone.
Reductions: alpha = 0, not adaptive, evaluates the server's model; whatever alpha, the server's models are those
without APFL, if the model draws no random numbers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from flwr.app import ConfigRecord, RecordDict
from torch import Tensor, nn

from clients.correction import Correction
from clients.examples import Examples
from clients.fast.trace import Step
from clients.tasks import Task
from clients.training import LocalUpdate, Personal
from strategies.shared.arrays import to_array_record, values_of
from strategies.shared.checks import require

STATE_KEY = "apfl"  # ArrayRecord of a node's state: v_k
ALPHA_KEY = "apfl-alpha"  # ConfigRecord of a node's state: alpha


@dataclass(frozen=True)
class APFL(Personal):
    """A mixture of the server's model and the node's own.

    Parameters
    ----------
    alpha : how much the node's own counts, in [0, 1]; where it is adaptive, at the start
    adaptive : whether each node learns its alpha
    """

    remembers: ClassVar[bool] = True
    alpha: float = 0.5
    adaptive: bool = False

    def __post_init__(self) -> None:
        """Refuse an alpha outside [0, 1]."""
        require(0 <= self.alpha <= 1, "client.personal.alpha", self.alpha, "in [0, 1]")

    def check(self, model: nn.Module, private: Sequence[str]) -> None:
        if private:
            raise ValueError(
                f"client.private={list(private)} with client.personal=APFL, whose nodes keep whole models "
                "of their own: set client.private=[]"
            )

    def train(self, update: LocalUpdate) -> dict[str, float]:
        state = update.memory
        assert state is not None, "what a node keeps needs a place"
        named = {name: p for name, p in update.model.named_parameters() if p.requires_grad}
        own, alpha = _load_state(state) or (
            {name: p.detach().clone() for name, p in named.items()},
            self.alpha,
        )
        rate = update.training.rate(update.server_round)
        mixture = Mixture(update.model, [own[name] for name in named], alpha, rate, self.adaptive)
        metrics = replace(update, corrections=[*update.corrections, mixture]).run()
        state[STATE_KEY] = to_array_record(dict(zip(named, mixture.own, strict=True)))
        state[ALPHA_KEY] = ConfigRecord({"alpha": mixture.alpha})
        return metrics

    @torch.no_grad()
    def personalise(
        self, model: nn.Module, examples: Examples, task: Task, batch_size: int | None, state: RecordDict
    ) -> None:
        if saved := _load_state(state):
            own, alpha = saved
            for name, p in model.named_parameters():
                if name in own:
                    p.lerp_(own[name].to(p), alpha)


class Mixture(Correction):
    """Takes a step of the node's own model before each step of the shared one.

    Parameters
    ----------
    model : in training
    own : v_k, a tensor for each trained parameter
    alpha, rate, adaptive : the share, the learning rate, and whether the share is learnt
    """

    def __init__(
        self, model: nn.Module, own: Sequence[Tensor], alpha: float, rate: float, adaptive: bool
    ) -> None:
        self.model, self.own = model, list(own)
        self.alpha, self.rate, self.learns_alpha = alpha, rate, adaptive

    def wrap_gradient(self, step: Step) -> Step:
        def train_both(
            parameters: Sequence[Tensor], *batch: Tensor
        ) -> tuple[Sequence[Tensor], dict[str, Tensor]]:
            self.own = [v.to(p) for v, p in zip(self.own, parameters, strict=True)]
            before = [p.detach().clone() for p in parameters]
            buffers = [buffer.clone() for buffer in self.model.buffers()]
            for p, v in zip(parameters, self.own, strict=True):
                p.lerp_(v, self.alpha)
            slopes, _ = step(parameters, *batch)
            alpha = self._next_alpha(slopes, before)
            self.own = [
                v.sub(g, alpha=self.rate * self.alpha) for v, g in zip(self.own, slopes, strict=True)
            ]
            self.alpha = alpha
            for value, old in zip([*parameters, *self.model.buffers()], [*before, *buffers], strict=True):
                value.copy_(old)
            return step(parameters, *batch)

        return train_both

    def _next_alpha(self, slopes: Sequence[Tensor], w: Sequence[Tensor]) -> float:
        if not self.learns_alpha:
            return self.alpha
        self.learns_alpha = False  # until the next round
        products = (torch.sum(g * (v - p)) for g, v, p in zip(slopes, self.own, w, strict=True))
        return min(1.0, max(0.0, self.alpha - self.rate * float(sum(products))))


def _load_state(state: RecordDict) -> tuple[dict[str, Tensor], float] | None:
    """Return v_k and alpha; None where there are none yet."""
    if STATE_KEY not in state.array_records:
        return None
    own = {name: values_of(array) for name, array in state.array_records[STATE_KEY].items()}
    return own, float(state.config_records[ALPHA_KEY]["alpha"])  # type: ignore[arg-type]
