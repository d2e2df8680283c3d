"""Client optimisers that torch does not have. RMSGD: rank-momentum SGD, a learning rate of its own for each layer.

Hosseini, Tuli, Plataniotis: *Exploiting Explainable Metrics for Augmented SGD*, CVPR 2022, and the authors'
code. After each epoch e, with KG the knowledge gain of a convolution's weight,

    KG      = mean over both unfoldings of sum(d / max d) / rows         d: shrunk singular values (EVBMF)
    rate    = beta lr + zeta lr                                          after the first epoch
              max(0, beta rate + zeta (KG_e - KG_(e-1)))                 after each later one
    w      <- w - rate * momentum buffer                                 SGD with momentum and L2 decay

A layer whose KG has been 0 so far (nothing learnt yet) has the rate ``lr`` after each later epoch. Other
parameters (biases, normalisation, dense layers unless ``linear``) take the rate of the parameter before
them. Deviation: the published code skips the layer after each one that becomes ready, for one epoch.
Reduction: without :meth:`RMSGD.epoch_step` this is ``torch.optim.SGD``.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from strategies.shared.checks import require
from strategies.shared.linalg import knowledge_gain, unfold


class RMSGD(Optimizer):
    """SGD whose rates follow the layers' ranks; call :meth:`epoch_step` after every epoch.

    Parameters
    ----------
    params : the parameters, in the model's order
    lr : the rate that each layer starts with; a schedule may scale ``group["lr"]``
    beta, zeta : gain decay in [0, 1) and gain factor of the rates
    momentum, weight_decay : as in ``torch.optim.SGD``
    linear : whether dense layers have rates of their own too
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 0.03,
        beta: float = 0.8,
        zeta: float = 1.0,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        linear: bool = False,
    ) -> None:
        require(lr > 0, "lr", lr, "above 0")
        require(0 <= beta < 1, "beta", beta, "in [0, 1)")
        require(zeta > 0, "zeta", zeta, "above 0")
        require(0 <= momentum < 1, "momentum", momentum, "in [0, 1)")
        require(weight_decay >= 0, "weight_decay", weight_decay, "0 or above")
        defaults = {
            "lr": lr,
            "start_rate": lr,
            "beta": beta,
            "zeta": zeta,
            "momentum": momentum,
            "weight_decay": weight_decay,
            "linear": linear,
        }
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Take one step with the present rates."""
        for group in self.param_groups:
            schedule = group["lr"] / group["start_rate"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                gradient = p.grad.add(p, alpha=group["weight_decay"])
                buffer = state.get("momentum_buffer")
                if buffer is None:
                    state["momentum_buffer"] = buffer = gradient.clone()
                else:
                    buffer.mul_(group["momentum"]).add_(gradient)
                p.sub_(buffer, alpha=state.get("rate", group["start_rate"]) * schedule)

    @torch.no_grad()
    def epoch_step(self) -> None:
        """Renew the rates from what the layers have gained since the last epoch."""
        for group in self.param_groups:
            rate = group["start_rate"]
            for p in group["params"]:
                if p.ndim == 4 or (group["linear"] and p.ndim == 2):
                    rate = self._renew_rate(p, group)
                self.state[p]["rate"] = rate

    def _renew_rate(self, p: Tensor, group: dict[str, Any]) -> float:
        """Return a layer's next rate."""
        state = self.state[p]
        start = float(group["start_rate"])
        rate, before = state.get("rate", start), state.get("gain")
        matrices = [p] if p.ndim == 2 else [unfold(p, "in"), unfold(p, "out")]
        gain = sum(knowledge_gain(matrix) for matrix in matrices) / len(matrices)
        state["gain"] = gain
        if before is None:
            return float(group["beta"] * rate + group["zeta"] * start)
        state["ready"] = state.get("ready", False) or gain > 0
        if not state["ready"]:
            return start
        return float(max(group["beta"] * rate + group["zeta"] * (gain - before), 0.0))
