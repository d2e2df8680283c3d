"""FedGMA: gradient masked averaging on FedAvg.

Tenison, Sreeramadas, Mugunthan, Oyallon, Rish, Belilovsky: *Gradient Masked Averaging for Federated
Learning*, TMLR 2023; read from I. Tenison's thesis, Algorithm 1.

    D_t    = sum_k (n_k / n) Delta_k                  weighting = ByExamples
    m_j    = 1 if A_j >= tau else A_j                 mask = AgreementMask(tau), A the sign agreement
    w[t+1] = w[t] - eta m * D_t                       step_size = Constant(eta)

The mask multiplies the *final* direction, so it goes with every strategy: FedAdam(mask=AgreementMask())
is the thesis' Algorithm 2, where the moments are updated with the unmasked mean. Deviations: the printed
minus signs of Algorithms 2 and 3 belong to the opposite sign of Delta, and Algorithm 2 has epsilon inside
the root (``server_optimizer.epsilon_inside=true``). Reduction: tau = 0 is FedAvg.
"""

from dataclasses import dataclass
from typing import ClassVar

from .core.pseudo_gradient import PseudoGradientStrategy
from .parts.mask import AgreementMask, Mask


@dataclass(kw_only=True, eq=False)
class FedGMA(PseudoGradientStrategy):
    """FedAvg with the agreement mask; see the module's docstring for the rule."""

    named_part: ClassVar[str] = "mask"
    mask: Mask = AgreementMask()
